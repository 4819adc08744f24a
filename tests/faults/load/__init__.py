"""Load that is large, hostile or expensive: what one caller sends does not cost another, and time limits hold."""
