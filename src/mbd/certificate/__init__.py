"""The Modality Deletion Certificate: composed, published, registered, verified as a whole, required by the guard."""
