"""A module that ends the process of whoever imports it, as a broken extension does."""

import os

os.abort()
