"""x"""
from .simple import default as min_cut
