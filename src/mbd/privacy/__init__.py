"""Privacy accounting: the Gaussian mechanism, its composition over a lineage, and the noise itself."""
