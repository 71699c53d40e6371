"""Decisions from predictive distributions: estimates of lowest expected loss, and policies."""
