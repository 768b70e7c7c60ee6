"""The narrow waist: `protocol.py` says what a store does; one folder a back end holds how.

Its SQL lies beside it.
"""
