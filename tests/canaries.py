"""Secrets as errors quote them: one text in each shape, and the part of it that nobody may read."""

from __future__ import annotations

_SHAPES: dict[str, tuple[str, str]] = {
    "url query key": (
        "GET https://generativelanguage.googleapis.com/v1beta/models?key={}",
        "AIzaSyD9tSrke72PouQMnMX7aeZSWjkFMBWYabc",
    ),
    "url query plain": ("https://api.host/v1?api_key={}&x=1", "plainwordsecret"),
    "url token": ("https://h/x?access_token={}", "a1b2c3"),
    "userinfo": ("connect https://ann:{}@host/path failed", "hunter2pw"),
    "dsn": ("could not connect: postgresql://app:{}@db/app", "s3cr#t/x@y"),
    "dsn kv": ("connection failed: host=db user=app password={} dbname=app", "swordfish"),
    "dsn kv quoted": ("host=db password='{}' dbname=app", "sword fish 2"),
    "mongodb": ("mongodb+srv://ann:{}@cluster0.x.mongodb.net", "pa55w0rd!"),
    "redis": ("redis://:{}@cache:6379/0", "redispw"),
    "odbc": ("DRIVER={{x}};SERVER=s;UID=sa;PWD={};", "Hunter2!"),
    "azure storage": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core",
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    ),
    "bearer": ("Authorization: Bearer {}", "abc.def-123"),
    "bearer bare": ("sent Bearer {} to host", "mF_9B5f41JqM"),
    "basic": ("'authorization': 'Basic {}'", "YW5uOmh1bnRlcjI="),
    "raw headers": ("[(b'Authorization', b'Bearer {}')]", "zzTop9xxYY"),
    "x-api-key": ("{{'x-api-key': '{}'}}", "f81d4fae7dec11d0a76500a0c91e6bf6"),
    "goog": ("x-goog-api-key: {}", "AIzaSyA1234567890abcdefghijklmnopqrstuv"),
    "api-key": ("api-key: {}", "0123456789abcdef0123456789abcdef"),
    "subkey": ("Ocp-Apim-Subscription-Key: {}", "0123456789abcdef0123456789abcdef"),
    "openai": ("Incorrect API key provided: {}. You can find", "sk-proj-abcdEFGH1234567890"),
    "anthropic": ("invalid x-api-key {}", "sk-ant-api03-AbCdEf123456-xyz"),
    "groq": ("bad {}", "gsk_abcdefghijklmnop1234567890"),
    "hf": ("bad {}", "hf_abcdefghijABCDEFGHIJklmnopqrst"),
    "r8": ("bad {}", "r8_abcdefghijABCDEFGHIJklmnopqrst1234567"),
    "xai": ("bad {}", "xai-abcdefghijABCDEFGHIJklmnopqrst1234567"),
    "akia": ("bad {}", "AKIAIOSFODNN7EXAMPLE"),
    "aws secret": ("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    "ghp": ("bad {}", "ghp_abcdefghij0123456789ABCDEFGHIJ012345"),
    "slack": ("bad {}", "xoxb-123456789012-abcdefGHIJ"),
    "stripe": ("bad {}", "sk_live_4eC39HqLyjWDarjtT1zdp7dc"),
    "jwt": (
        "bad {} x",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ),
    "pem": (
        "key: -----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "MIIEpAIBAAKCAQEA04up8hoqzS1\nabcdefghijklmnopq",
    ),
    "pem escaped": (
        '{{"private_key": "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----\\n"}}',
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
    ),
    "pem cut": ("-----BEGIN PRIVATE KEY-----\n{}", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSj"),
    "sigv4": (
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders=host;range, Signature={}",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    "sigv4 url": (
        "https://b.s3.amazonaws.com/x?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F2013&X-Amz-Signature={}&X-Amz-Expires=60",
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    "gcs url": (
        "https://storage.googleapis.com/x?X-Goog-Signature={}",
        "247a2aa45f169edf4d187d54e7cc46e4731b1e6273242c4f4c39a1d2507a0e58706e25e3a85a7dbb891d62afa8496def",
    ),
    "sas": ("https://a.blob.core.windows.net/c?sv=2022&sig={}&se=2026", "abcDEF123%2Bxyz456%3D"),
    "entropy near key": ("the key {} was refused", "Zx81kQvT0pL92mNbR7sYwE3u"),
    "entropy password": ("password {} rejected", "kQ9x-Tz81LmNb77RsYwE"),
    "env": ("OPENAI_API_KEY={}", "whatever12345"),
    "json pw": ('{{"password": "{}"}}', "correct horse battery"),
    "escaped json": ('{{\\"api_key\\": \\"{}\\"}}', "abcd1234efgh"),
    "python repr": ("Client(api_key='{}')", "my-own-key"),
    "cookie": ("Cookie: session={}; theme=dark", "s3ss10nvalue"),
    "yaml": ("password: {}", "hunter2"),
    "client secret": ("client_secret={}", "plainwords"),
    "twilio": ("bad {}", "SK0123456789abcdef0123456789abcdef"),
    "tg": ("token {}", "tg_0123456789_abcDEF123abcDEF123"),
    "vault": ("bad {}", "hvs.CAESIabcdefghijklmnopqrst"),
    "userinfo token": ("https://{}@github.com/x/y.git", "4f8aB19cDe2fGh7iJk3L"),
    "curl": ("curl -u ann:{} https://h", "hunter2x"),
}

CANARIES = {name: (text.format(secret), secret) for name, (text, secret) in _SHAPES.items()}
"""By shape: the text of an error, and the secret in it. None of them opens anything."""
