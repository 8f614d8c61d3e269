"""Files of released formats, frozen: what they say must be understood forever."""
