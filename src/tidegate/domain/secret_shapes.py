"""Tables that describe secrets: the prefixes that issuers give them, and the names before them.

[redaction.py](redaction.py) applies them. Each prefix is documented by its issuer.
"""

from __future__ import annotations

_ALNUM = "[A-Za-z0-9]"
_WORD = r"[\w-]"
_HEX = "[0-9a-fA-F]"

PREFIXED: tuple[tuple[str, str], ...] = (
    # AI providers
    ("sk-", rf"sk-(?:(?=[A-Za-z_-]{{0,64}}\d){_WORD}{{8,}}|{_WORD}{{24,}})"),  # OpenAI, Anthropic, DeepSeek…
    ("sk_", rf"sk_(?:(?=[A-Za-z_]{{0,64}}\d)\w{{8,}}|{_ALNUM}{{24,}})"),  # ElevenLabs, Stripe
    ("sess-", rf"sess-{_ALNUM}{{20,}}"),
    ("AIza", rf"AIza{_WORD}{{16,}}"),  # Google API key
    ("AQ.", rf"AQ\.{_WORD}{{30,}}"),
    ("ya29.", r"ya29\.[\w.-]{16,}"),  # Google OAuth
    ("GOCSPX-", rf"GOCSPX-{_WORD}{{20,}}"),
    ("1//0", rf"1//0{_WORD}{{30,}}"),
    ("gsk_", rf"gsk_{_ALNUM}{{16,}}"),  # Groq
    ("hf_", rf"hf_{_ALNUM}{{20,}}"),  # Hugging Face
    ("api_org_", rf"api_org_{_ALNUM}{{20,}}"),
    ("r8_", rf"r8_{_ALNUM}{{20,}}"),  # Replicate
    ("xai-", rf"xai-{_WORD}{{20,}}"),
    ("pplx-", rf"pplx-{_ALNUM}{{20,}}"),  # Perplexity
    ("nvapi-", rf"nvapi-{_WORD}{{20,}}"),
    ("fw_", rf"fw_{_ALNUM}{{20,}}"),  # Fireworks
    ("csk-", rf"csk-{_ALNUM}{{20,}}"),  # Cerebras
    ("tgp_v1_", rf"tgp_v1_{_WORD}{{20,}}"),  # Together
    ("jina_", rf"jina_{_WORD}{{20,}}"),
    ("pa-", rf"pa-(?=[A-Za-z_-]{{0,64}}\d){_WORD}{{30,}}"),  # Voyage
    ("lsv2_", r"lsv2_(?:pt|sk)_\w{20,}"),  # LangSmith
    ("pcsk_", r"pcsk_\w{20,}"),  # Pinecone
    ("rpa_", rf"rpa_{_ALNUM}{{20,}}"),  # RunPod
    ("tvly-", rf"tvly-{_WORD}{{16,}}"),
    ("ABSK", r"ABSK[A-Za-z0-9+/]{40,}={0,2}"),  # Bedrock
    ("bedrock-api-key-", r"bedrock-api-key-[A-Za-z0-9+/]{20,}={0,2}"),
    ("dapi", rf"dapi{_HEX}{{32}}(?:-\d)?"),  # Databricks
    ("tg_", rf"tg_{_HEX}{{10}}_{_WORD}{{8,}}"),  # our own
    # clouds and hosts
    ("AKIA", r"AKIA[A-Z0-9]{16}"),
    ("ASIA", r"ASIA[A-Z0-9]{16}"),
    ("ABIA", r"ABIA[A-Z0-9]{16}"),
    ("ACCA", r"ACCA[A-Z0-9]{16}"),
    ("A3T", r"A3T[A-Z0-9]{17}"),
    ("LTAI", rf"LTAI{_ALNUM}{{12,}}"),  # Alibaba
    ("AKID", rf"AKID{_ALNUM}{{32}}"),  # Tencent
    ("Q~", r"[\w.~-]{3}\dQ~[\w.~-]{31,34}"),  # Entra ID
    ("dop_v1_", rf"dop_v1_{_HEX}{{40,}}"),
    ("doo_v1_", rf"doo_v1_{_HEX}{{40,}}"),
    ("dor_v1_", rf"dor_v1_{_HEX}{{40,}}"),
    ("hvs.", rf"hvs\.{_WORD}{{20,}}"),  # Vault
    ("hvb.", rf"hvb\.{_WORD}{{20,}}"),
    ("hvr.", rf"hvr\.{_WORD}{{20,}}"),
    ("fo1_", rf"fo1_{_WORD}{{40,}}"),
    ("fm1", r"fm1[ar]_[A-Za-z0-9+/]{40,}={0,3}"),
    ("fm2_", r"fm2_[A-Za-z0-9+/]{40,}={0,3}"),
    ("HRKU-", rf"HRKU-{_WORD}{{30,}}"),
    ("rnd_", rf"rnd_{_ALNUM}{{24,}}"),
    ("CFPAT-", rf"CFPAT-{_WORD}{{40,}}"),
    ("v1.0-", rf"v1\.0-{_HEX}{{20,}}-{_HEX}{{100,}}"),
    ("pul-", rf"pul-{_HEX}{{40}}"),
    (".atlasv1.", rf"{_ALNUM}{{14}}\.atlasv1\.[\w=-]{{40,}}"),
    ("dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}"),
    ("p8e-", rf"p8e-{_ALNUM}{{32}}"),
    ("ops_", r"ops_[A-Za-z0-9+/]{100,}={0,3}"),
    ("A3-", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-?){5,6}"),
    # code and packages
    *((f"gh{kind}_", rf"gh{kind}_\w{{16,}}") for kind in "pousr"),
    ("github_pat_", r"github_pat_\w{20,}"),
    ("glpat-", r"glpat-[\w.-]{16,}"),
    ("gl", r"gl(?:dt|ft|imt|oas|ptt|rt|rtr|soat|agent|cbt|ffct|sst)-[\w.-]{16,}"),
    ("GR1348941", rf"GR1348941{_WORD}{{16,}}"),
    ("_gitlab_session=", rf"_gitlab_session={_HEX}{{32}}"),
    ("ATATT3", r"ATATT3[\w=-]{40,}"),  # Atlassian
    ("ATCTT3", r"ATCTT3[\w=-]{40,}"),
    ("ATBB", rf"ATBB{_ALNUM}{{28,}}"),
    ("npm_", rf"npm_{_ALNUM}{{30,}}"),
    ("pypi-", rf"pypi-{_WORD}{{30,}}"),
    ("rubygems_", rf"rubygems_{_HEX}{{40,}}"),
    ("CLOJARS_", rf"(?i:CLOJARS_{_ALNUM}{{50,}})"),
    ("dckr_", rf"dckr_(?:pat|oat)_{_WORD}{{20,}}"),
    ("oy2", r"oy2[a-z0-9]{43}"),  # NuGet
    ("AKC", rf"AKC(?=[A-Z]{{0,64}}[a-z\d]){_ALNUM}{{10,}}"),  # Artifactory
    ("cmVmd", rf"cmVmd{_ALNUM}{{55,}}"),
    ("sgp_", rf"sgp_{_WORD}{{20,}}"),
    ("sntrys_", r"sntrys_[A-Za-z0-9+/=_]{40,}"),
    ("sntryu_", rf"sntryu_{_HEX}{{40,}}"),
    ("lin_api_", rf"lin_api_{_ALNUM}{{30,}}"),
    ("PMAK-", rf"PMAK-{_HEX}{{20,}}-{_HEX}{{30,}}"),
    ("figd_", rf"figd_{_WORD}{{30,}}"),
    ("ntn_", rf"ntn_{_ALNUM}{{30,}}"),
    ("secret_", rf"secret_{_ALNUM}{{40,}}"),
    ("scl", r"scl(?:-api)?_[A-Za-z0-9]{30,}"),
    ("cio", rf"cio[A-Z]?{_WORD}{{30,}}"),
    ("bb_live_", rf"bb_live_{_WORD}{{20,}}"),
    ("octo", r"octo-?[A-Z0-9]{20,}"),
    ("API-", r"API-[A-Z0-9]{26}"),
    # messages, money, monitoring
    ("xox", r"xox[a-z](?:-\d)?-[\w.-]{4,}"),
    ("xoxe.", r"xoxe\.xox[a-z]-\d-[\w-]{16,}"),
    ("xapp-", rf"xapp-{_WORD}{{16,}}"),
    ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+=-]{8,}"),
    (".webhook.office.com/", r"\w{1,60}\.webhook\.office\.com/webhookb2/[\w@/-]{30,}"),
    (".", rf"[MNO]{_WORD}{{23,27}}\.{_WORD}{{6}}\.{_WORD}{{27,}}"),  # Discord
    ("Private-Lines:", r"Private-Lines: \d+\s+(?:[A-Za-z0-9+/=]{16,80}\s*)+"),  # PuTTY
    ("discord.com/api/webhooks/", r"discord\.com/api/webhooks/\d+/[\w-]{20,}"),
    (":", rf"\d{{8,10}}:{_WORD}{{35}}"),  # Telegram
    ("SG.", rf"SG\.{_WORD}{{16,}}\.{_WORD}{{16,}}"),
    ("xkeysib-", rf"xkeysib-{_HEX}{{40,}}-{_ALNUM}{{16}}"),
    ("key-", rf"key-{_HEX}{{32}}"),  # Mailgun
    ("-us", r"[0-9a-z]{32}-us\d{1,2}"),  # Mailchimp
    ("SK", r"SK(?=[a-z]{0,31}\d)[a-z0-9]{32}"),  # Twilio
    ("AC", r"AC(?=[a-z]{0,31}\d)[a-z0-9]{32}"),
    *(
        (f"{kind}_{place}_", rf"{kind}_{place}_\w{{8,}}")
        for kind in ("pk", "rk", "sk")
        for place in ("live", "test", "prod")
    ),
    *((f"{kind}-", rf"{kind}-(?=[A-Za-z_-]{{0,64}}\d){_WORD}{{16,}}") for kind in ("pk", "rk")),
    ("whsec_", r"whsec_[A-Za-z0-9+/=]{20,}"),
    ("sq0", r"sq0[a-z]{3}-[\w\\-]{20,}"),  # Square
    ("EAAA", rf"EAAA{_WORD}{{30,}}"),
    ("|", rf"\d{{13,18}}\|{_WORD}{{24,}}"),
    ("EAAM", rf"EAAM{_ALNUM}{{80,}}"),  # Facebook
    ("EAAC", rf"EAAC{_ALNUM}{{80,}}"),
    ("shp", rf"shp(?:at|ca|pa|ss)_{_HEX}{{32}}"),
    ("FLWSECK_", rf"FLWSECK_TEST-{_ALNUM}{{12,}}"),
    ("FLWPUBK_", rf"FLWPUBK_TEST-{_ALNUM}{{12,}}"),
    ("plaid-", rf"access-(?:sandbox|development|production)-{_HEX}{{8}}"),
    ("dt0c01.", r"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),  # Dynatrace
    ("NRAK-", rf"NRAK-{_ALNUM}{{20,}}"),
    ("NRJS-", rf"NRJS-{_ALNUM}{{16,}}"),
    ("NRII-", rf"NRII-{_WORD}{{20,}}"),
    ("NRRA-", rf"NRRA-{_HEX}{{30,}}"),
    ("glsa_", r"glsa_\w{30,}"),
    ("glc_", r"glc_[A-Za-z0-9+/]{30,}={0,3}"),
    ("phc_", rf"phc_{_ALNUM}{{30,}}"),
    ("phx_", rf"phx_{_ALNUM}{{30,}}"),
    ("pat", rf"pat{_ALNUM}{{14}}\.{_HEX}{{64}}"),  # Airtable
    ("sbp_", rf"sbp_{_HEX}{{40}}"),
    ("sb_secret_", rf"sb_secret_{_WORD}{{16,}}"),
    ("pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.=-]{30,}"),
    ("EZAK", rf"EZAK{_ALNUM}{{50,}}"),
    ("EZTK", rf"EZTK{_ALNUM}{{50,}}"),
    ("duffel_", rf"duffel_(?:test|live)_{_WORD}{{40,}}"),
    ("shippo_", rf"shippo_(?:live|test)_{_HEX}{{40}}"),
    ("rdme_", r"rdme_[a-z0-9]{60,}"),
    ("pnu_", rf"pnu_{_ALNUM}{{30,}}"),
    ("tfp_", r"tfp_[\w=.-]{40,}"),
    ("LSK_", rf"LSK_{_ALNUM}{{30,}}"),
    ("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{40,}"),
    ("s-s4t2", rf"s-s4t2(?:ud|af)-{_HEX}{{64}}"),
    ("sha256~", rf"sha256~{_WORD}{{43}}"),  # OpenShift
    ("eyJ", r"eyJ[\w=-]{1,512}\.[\w=-]{2,}(?:\.[\w=-]*){0,4}"),  # JSON Web Token
)
"""Text that must occur, and the pattern of the whole secret."""

SURE = (
    *("password", "passwd", "passwort", "passphrase", "passcode", "passkey", "pwd", "secret", "secretkey"),
    *("apikey", "accesskey", "accountkey", "privatekey", "subscriptionkey", "sharedkey", "encryptionkey"),
    *("signingkey", "masterkey", "authkey", "accesstoken", "refreshtoken", "idtoken", "authtoken"),
    *("bearertoken", "sessiontoken", "securitytoken", "apitoken", "bottoken", "csrftoken", "xsrftoken"),
    *("credential", "credentials", "authorization"),
)
"""Ends of names whose value is secret: in lower case, without `_` and `-` (`OPENAI_API_KEY`: `apikey`)."""

LIKELY = (
    *("token", "key", "auth", "sig", "signature", "sas", "session", "sessionid", "nonce", "code", "pass"),
    *("pw", "pin", "jwt", "access"),
)
"""Ends of names whose value is secret if it looks random."""

HARMLESS_NAMES = frozenset(
    [
        *("cachekey", "idempotencykey", "partitionkey", "primarykey", "sortkey", "foreignkey"),
        *("groupkey", "routingkey", "rowkey", "dedupekey", "publickey", "uniquekey", "objectkey"),
        *("s3key", "concurrencykey", "nexttoken", "pagetoken", "continuationtoken", "nextpagetoken"),
        *("statuscode", "errorcode", "exitcode", "zipcode", "countrycode", "padtoken", "eostoken"),
        *("bostoken", "unktoken", "septoken", "clstoken", "masktoken", "maxtoken", "publishablekey"),
    ]
)
"""Names that end like names of secrets but are not secret. In lower case, without `_` and `-`."""

HARMLESS_VALUES = frozenset(
    [
        *("none", "null", "nil", "true", "false", "undefined", "empty", "missing", "required", "invalid"),
        *("incorrect", "wrong", "expired", "unknown", "redacted", "hidden", "masked", "str", "string"),
        *("int", "bytes", "bool", "float", "optional", "default", "changed", "revoked", "rejected"),
        *("denied", "failed", "failure", "error", "mismatch", "accepted", "authentication"),
        *("authorization", "unset", "set", "not", "is", "was", "has", "must", "cannot", "the", "a", "an"),
        *("and", "or", "for", "in", "of", "to", "with", "too", "here", "you", "your", "please", "bearer"),
    ]
)
"""Values that describe a secret without being one. Compared in lower case."""
