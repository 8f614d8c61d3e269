"""Formats: every record that is stored or published, each declared once. Start at the module named after the file.

Signed envelopes, the trust file and log proofs are in :mod:`mbd.certificate`, with the cryptography that defines them.
"""
