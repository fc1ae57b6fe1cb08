"""The comparison shows every search, warns where they cannot be compared, and is a page like the report."""

from collections import Counter

import synthetic_results as synthetic
from test_page import Strict

from vrgd_ray.report.comparison import differences, render_comparison


def test_every_search_is_there_with_its_verdict_and_its_numbers():
    text = render_comparison([synthetic.full(), synthetic.nothing_accepted() | {"name": "second"}])
    page = Strict(text)
    assert "Largest batch without loss: 256 with adamw" in page.text
    assert "No batch above 32 was accepted" in page.text
    assert text.index("Largest batch without loss") < text.index("<svg") < text.index("Key numbers")
    assert text.count("<svg") == 2
    assert "8.1 times" in page.text
    assert "4,300,000 samples, 3 min 24 s" in page.text


def test_the_page_is_well_formed_self_contained_and_without_double_ids():
    for other in synthetic.ALL:
        text = render_comparison([synthetic.full(), other()])
        page = Strict(text)
        ids = Counter(attributes["id"] for _, attributes in page.found if "id" in attributes)
        assert max(ids.values()) == 1
        assert all(a["href"][1:] in ids for _, a in page.found if a.get("href"))
        assert not {tag for tag, _ in page.found} & {"script", "img", "link"}
        assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_what_the_searches_do_not_share_is_said():
    assert differences([synthetic.full(), synthetic.nothing_accepted()]) == []
    assert differences([synthetic.full(), synthetic.smaller_is_better()]) == [
        "They measure different metrics: accuracy, loss.",
        "They do not agree on which metric is better: larger, smaller.",
        "Their references differ: 32 with adamw, 32 with sgd.",
        "Their margins differ: 1.0 points, 5 % of the reference.",
        "They tried different batch sizes: 64 128 256 512, 64 128.",
    ]
    other = synthetic.full(data_fingerprint="0123", pipeline="mine")
    assert differences([synthetic.full(), other]) == [
        "They train different pipelines: pipelines.digits, mine.",
        "Their data differ, by the fingerprint: d32c235b700dc8fe, 0123.",
    ]
    assert differences([synthetic.full(), synthetic.full(data_fingerprint=None)]) == []


def test_everything_that_a_search_was_asked_counts():
    first = synthetic.full(pipeline_args={}, resolution=2.0, level_per_look=0.0125)
    asked = {"pipeline_args": {"width": 8}, "alpha": 0.5, "looks": [2, 4], "resolution": 1.25, "level_per_look": 0.05}
    other = synthetic.full(num_train_samples=2200, paired=True, **asked)
    other["reference"] = other["reference"] | {"recipe": other["reference"]["recipe"] | {"epochs": 3}, "trials": 16}
    first["reference"] = first["reference"] | {"trials": 8}
    assert differences([first, other]) == [
        "Their pipelines have different arguments: none, width=8.",
        "Their training sets have different sizes: 1100, 2200.",
        "They train for different numbers of epochs: 30, 3.",
        "Their chances of a wrong claim differ: 5 %, 50 %.",
        "Their levels of one look differ: 1.25 %, 5 %.",
        "They look after different numbers of seeds: 5 and 10, 2 and 4.",
        "Their seeds are compared in different ways: unpaired, paired.",
        "Their cells were tuned with different numbers of trials: 8, 16.",
        "They bracket the limit down to different ratios: 2, 1.25.",
    ]


def test_names_do_not_become_markup():
    page = Strict(render_comparison([synthetic.unusual_names(), synthetic.full(name="<script>x</script>")]))
    assert "script" not in {tag for tag, _ in page.found}
    assert "<script>x</script>" in page.text
