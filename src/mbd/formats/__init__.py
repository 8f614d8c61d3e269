"""Formats: every record that is stored or published, each declared once. Start at the module named after the file.

Envelopes, the trust file and proofs of the log are in :mod:`mbd.trust` and :mod:`mbd.log`, with their cryptography.
"""
