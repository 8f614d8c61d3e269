"""Real servers on loopback, each started on free ports in a folder of its own and stopped by its process id."""
