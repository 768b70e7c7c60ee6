"""What AI providers' errors, headers and usage mean, as facts. No SDK is imported; nothing is called.

`packs/` has one small file a provider; the modules beside it read answers and exceptions in general.
"""
