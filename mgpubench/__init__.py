"""mgpubench: DataParallel against DistributedDataParallel, measured on your own machine."""

__version__ = "0.1.0"
