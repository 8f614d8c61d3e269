"""Metrics for Prometheus: their definitions, the exporter, and delivery by Pushgateway or textfile."""
