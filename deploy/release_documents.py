#!/usr/bin/env python3
"""Writes the documents of a release: what is in it, and what has changed (deploy/release.sh, which calls it).

    deploy/release_documents.py BUNDLE COMMIT DATE FOLDER

BUNDLE: an unpacked bundle. COMMIT and DATE (ISO 8601): of its sources. Writes catchment-VERSION.spdx.json
(SPDX 2.3) and RELEASE_NOTES.md to FOLDER, whose other files the former lists with their checksums. Run it in
the project.
"""

import datetime
import hashlib
import json
import os
import re
import sys

# "libfoo1 1.2-3 (source foo)", as deploy/bundle.sh writes LIBRARIES.
LIBRARY = re.compile(r"(\S+) (\S+) \(source (\S+)\)")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def hashes(path):
    with open(path, "rb") as file:
        data = file.read()
    return [
        {"algorithm": name.upper(), "checksumValue": hashlib.new(name, data).hexdigest()}
        for name in ("sha1", "sha256")
    ]


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def utc(date):
    return (
        datetime.datetime.fromisoformat(date).astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    )


def library_package(package, version, source):
    return {
        "name": package,
        "SPDXID": spdx_id("Package-" + package),
        "versionInfo": version,
        "supplier": "Organization: Debian",
        "sourceInfo": "built from Debian's source package " + source,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "comment": "The licenses are in licenses/%s of the bundle." % package,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": "pkg:deb/debian/%s@%s?distro=bookworm"
                % (package, version.replace("+", "%2B")),
            }
        ],
    }


def files_of(folder, name):
    """Returns the files in a folder whose names begin with `name`, as SPDX describes them."""
    return [
        {
            "fileName": "./" + entry,
            "SPDXID": spdx_id("File-" + entry),
            "checksums": hashes(os.path.join(folder, entry)),
            "licenseConcluded": "NOASSERTION",
            "copyrightText": "NOASSERTION",
        }
        for entry in sorted(os.listdir(folder))
        if entry.startswith(name)
    ]


def bill_of_materials(libraries, version, commit, created, tool, files=()):
    """Returns the SPDX document: the product, its files, and the libraries that bundle and wheel contain.
    libraries: the text of LIBRARIES."""
    name = "catchment-" + version
    libraries = [library_package(*found) for found in LIBRARY.findall(libraries)]
    product = {
        "name": "catchment",
        "SPDXID": "SPDXRef-Catchment",
        "versionInfo": version,
        "sourceInfo": "commit " + commit,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": "APPLICATION",
    }
    related = [("SPDXRef-DOCUMENT", "DESCRIBES", product["SPDXID"])]
    related += [(product["SPDXID"], "CONTAINS", library["SPDXID"]) for library in libraries]
    related += [(file["SPDXID"], "GENERATED_FROM", product["SPDXID"]) for file in files]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": "https://spdx.org/spdxdocs/%s-%s" % (name, commit),
        "creationInfo": {"created": created, "creators": ["Tool: " + tool]},
        "packages": [product] + libraries,
        "files": list(files),
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in related
        ],
    }


def release_notes(version, commit):
    """Returns the version's section of CHANGELOG.md, without links to files,
    which a release does not have."""
    section = re.search(
        r"^## %s\b[^\n]*\n(.*?)(?=^## |\Z)" % re.escape(version),
        read("CHANGELOG.md"),
        re.MULTILINE | re.DOTALL,
    )
    if section is None:
        sys.exit('release: CHANGELOG.md has no section "## %s"' % version)
    text = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", section[1]).strip()
    return "# Catchment %s\n\nCommit %s.\n\n%s\n" % (version, commit, text)


def main():
    bundle, commit, date, folder = sys.argv[1:]
    version = read(os.path.join(bundle, "VERSION")).split()[1]
    notes = release_notes(version, commit)
    bill = bill_of_materials(
        read(os.path.join(bundle, "LIBRARIES")),
        version,
        commit,
        utc(date),
        "deploy/release.sh",
        files_of(folder, "catchment-" + version),
    )
    with open(os.path.join(folder, "catchment-%s.spdx.json" % version), "w", encoding="utf-8") as file:
        json.dump(bill, file, indent=1)
        file.write("\n")
    with open(os.path.join(folder, "RELEASE_NOTES.md"), "w", encoding="utf-8") as file:
        file.write(notes)


if __name__ == "__main__":
    main()
