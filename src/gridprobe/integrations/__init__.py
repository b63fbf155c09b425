"""gridprobe as a model of other evaluation programs."""
