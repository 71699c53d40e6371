"""Decisions on several labels per row: costs or F-beta, and the policy."""
