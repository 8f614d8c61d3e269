// KaTeX (docs/javascripts/katex, version 0.19.1) sets what pymdownx.arithmatex has marked; \( \) within a line, \[ \] between lines.
for (const element of document.querySelectorAll(".arithmatex")) {
  const [, open, formula] = element.textContent.match(/^\\([([])(.*)\\[)\]]$/s);
  katex.render(formula, element, { displayMode: open === "[" });
}
