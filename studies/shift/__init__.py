"""Calibration under shift, over five severities."""
