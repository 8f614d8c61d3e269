"""The Modality Deletion Certificate: what it states, how it is signed, logged, published and verified."""
