"""The charts of reports and displays: built once, drawn as SVG or with matplotlib."""
