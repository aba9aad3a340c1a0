"""Text that is easily cut in the wrong place."""

from hypothesis import strategies as st

WORDS_OF_THE_WORLD = (
    "plain",
    "caf\u00e9",
    "e\u0301te\u0301",  # combining marks
    "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031ea\u0349\u034d",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",  # a family of four, joined
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f44d\U0001f3fd",
    "\U0001f1e8\U0001f1ed",  # a flag
    "\u65e5\u672c\u8a9e\u306e\u6587",
    "\ud55c\uad6d\uc5b4",
    "\u1112\u1161\u11ab",  # the same, in parts
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645",
    "\u202bmixed\u202c",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U00020000\U0002a6d6",
    "x\u00adx\u200b",
)

HARD_TEXT = st.sampled_from(WORDS_OF_THE_WORLD) | st.characters(
    exclude_categories=("Cs", "Cc"), exclude_characters="<>[]{}|\ufffd"
)
"""Those words, and any other character that begins no marker."""
