"""Periods on which issuers and verifiers agree."""

from datetime import timedelta

LONGEST_INTERVAL = timedelta(days=366)
"""until the next audit of a released model"""
CHECKPOINT_AGE = timedelta(days=7)
"""how old the newest checkpoint of a log may be to show that nothing was revoked, unless a verifier says otherwise"""
