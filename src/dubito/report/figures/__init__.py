"""Charts of a report as SVG: lines, bands, bars and points, colored by the page's own style."""
