"""Figures for papers, from run folders or a model's price list, as SVG and PNG. matplotlib draws them."""
