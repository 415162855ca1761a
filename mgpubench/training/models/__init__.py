"""Models by name: our own, torchvision's and the user's."""
