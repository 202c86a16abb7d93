"""The second stage: candidates embedded on the fly, remembered, and put in a better order."""
