"""Who is trusted, and with which keys: the trust file, private keys, signed envelopes, commitments."""
