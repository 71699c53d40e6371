"""Charts of a report as SVG: lines, bands, bars and points, coloured by the page's own style."""
