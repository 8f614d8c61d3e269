"""Certificates and models over HTTP."""

from mbd.formats.layout import certificate_name
from mbd.formats.predicate import COPIES
from tests.monitoring.golden_store import golden
from tests.serving.site import Site, SiteClient


def test_certificates_have_the_state_that_the_log_says(site: Site) -> None:
    first = site.golden.certificate("exact")
    second = site.golden.certificate("surgery", days=20)
    site.golden.revoke(first)
    with site.client() as client:
        found = client.get("/certificates", None).json()["certificates"]
        assert [(one["digest"], one["state"]) for one in found] == [(second, "valid"), (first, "revoked")]
        shown = client.get(f"/certificates/{first}", None).json()
        assert [(one["kind"], one["effect"]) for one in shown.pop("statements")] == [("revocation", "revoked")]
        assert shown.pop("issuer") == {"name": None, "contact": None}
        assert shown.pop("copies") == COPIES["none"]
        assert shown.pop("guarantee_words") == "exact (byte for byte)"
        assert shown == found[1]
        assert client.get("/certificates", None, params={"text": first[:8]}).json()["certificates"] == found[1:]
        assert client.get("/certificates", None, params={"state": "valid"}).json()["certificates"] == found[:1]
        assert client.get("/certificates", None, params={"verdict": "withdrawn"}).json()["certificates"] == found[1:]
        assert client.get("/certificates", None, params={"model": "x"}).json()["certificates"] == []
        page = client.get("/certificates", None, params={"limit": 1}).json()
        following = client.get("/certificates", None, params={"limit": 1, "before": page["next"]}).json()
        assert (page["certificates"] + following["certificates"], following["next"]) == (found, None)
        site.golden.revoke(second)
        client.rescan()
        assert client.get(f"/certificates/{second}", None).json()["state"] == "revoked"
        assert client.get(f"/certificates/{'0' * 64}", None).status_code == 404


def test_a_model_is_shown_with_its_release_and_what_is_revoked(site: Site) -> None:
    digest = site.golden.certificate("surgery")
    with site.client() as client:
        found = client.get("/models/sentiment", None).json()
        assert (found["current"]["digest"], found["revoked"]) == (digest, ["audio"])
        assert found["takes"] == list(golden("surgery").predicate.structure.inputs)
        (release,), _ = found.pop("releases"), found.pop("statements")
        assert (release["digest"], release["current"], release["certificate"]) == (digest, True, found["current"])
        assert client.get("/models", None).json()["models"] == [found]
        unknown = client.get("/models/other", None)
        assert (unknown.status_code, unknown.json()["known"]) == (404, ["sentiment"])


def test_a_model_is_shown_with_all_its_releases_and_what_was_said_about_them(site: Site) -> None:
    registered = site.golden.registration("exact", promoted=False)
    first = site.golden.certificate("exact")
    second = site.golden.certificate("surgery", supersedes=first)
    audit = site.golden.audit(second)
    with site.client() as client:
        found = client.get("/models/sentiment", None).json()
    states = [(one["digest"], one["promoted"], (one["certificate"] or {}).get("state")) for one in found["releases"]]
    assert states == [(registered, False, None), (first, True, "superseded"), (second, True, "valid")]
    about = [(one["digest"], one["about"], one["kind"]) for one in found["statements"]]
    assert about == [(second, first, "supersession"), (audit, second, "reaudit")]


def test_a_replaced_certificate_names_the_current_release_on_its_page_too(site: Site) -> None:
    chain = [site.golden.certificate("exact")]
    for _ in range(2):
        chain.append(site.golden.certificate("exact", supersedes=chain[-1]))
    with site.client() as client:
        client.service.url = "https://mbd.example"
        found = client.get("/certificates", None).json()["certificates"]
        pages = [client.get(f"/certificates/{digest}/page", None).text for digest in chain]
    assert [one["verdict"] for one in found] == ["verified", "replaced", "replaced"]
    current = {"kind": "certificate", "digest": chain[-1], "current": True}
    assert [one["successor"] for one in found] == [None, current | {"releases": 1}, current | {"releases": 2}]
    address = f"https://mbd.example/store/certificates/{chain[-1]}"
    named = f'Current release: <a href="{address}">{address}</a> '
    assert [named in page for page in pages] == [True, True, False]
    assert ["audited again by" in page for page in pages] == [False, False, True]


def test_a_certificate_that_was_changed_in_the_store_is_not_shown(site: Site) -> None:
    digest = site.golden.certificate("exact")
    (site.golden.folder / "store" / certificate_name(digest)).write_bytes(b"{}")
    with site.client() as client:
        answers = [client.get(f"/certificates/{digest}{page}", None) for page in ("", "/page")]
    assert [answer.status_code for answer in answers] == [409, 409]
    assert [answer.json()["verdict"] for answer in answers] == ["forged or damaged"] * 2


def test_the_page_of_a_certificate_says_nothing_of_this_machine(client: SiteClient) -> None:
    digest = next(iter(client.service.history.certificates))
    client.service.url = "https://mbd.example"
    answer = client.get(f"/certificates/{digest}/page", None)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert f"mbd verify https://mbd.example/store/certificates/{digest}" in answer.text
    assert "file://" not in answer.text and str(client.site.golden.folder) not in answer.text


def test_the_address_that_is_printed_on_a_certificate_leads_a_browser_to_its_page(client: SiteClient) -> None:
    digest = next(iter(client.service.history.certificates))
    answer = client.http.get(f"/store/certificates/{digest}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, f"/console/certificates/{digest}")
    assert client.http.get("/store/certificates/abc").status_code == 404  # as of everything that the store lacks


def test_before_the_first_scan_lists_are_not_empty_but_unavailable(site: Site) -> None:
    site.golden.trust_file.write_text("{}")
    with site.client() as client:
        assert client.get("/certificates", None).status_code == 503
        assert client.get("/requests").status_code == 503
        assert client.get("/readyz", None).status_code == 200
