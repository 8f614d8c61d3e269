"""Pages: one content (`content`), rendered as HTML, Markdown, JSON and, by `mbd.report.text`, for the terminal.

    page = certificate_page(statement, PageContext(digest))        # or audit_page(record), or index_page(…)
    to_html(page), to_markdown(page), to_text(page), page.to_json()

A page is made from a bundle at any time and is not part of it, so it changes nothing that was signed. The same bundle
gives the same bytes.
"""
