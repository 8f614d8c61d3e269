"""The page that people look at: one content, shown as HTML, as Markdown and as JSON.

    page = certificate_page(statement, Known(digest))        # what it says (mbd.report.page.certificate)
    to_html(page), to_markdown(page), page.to_json()

A page is made from a bundle at any time and is no part of it: the subjects of a certificate stay as they were signed.
The same bundle gives the same bytes.
"""
