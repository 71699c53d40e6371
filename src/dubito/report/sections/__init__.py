"""The parts of a report, each made of what was computed."""
