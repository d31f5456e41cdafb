"""The columns of the Outbrain click data, and the embedding tables that the network has for them.

Names, rows, widths and the number of ids a list are those of NVIDIA DeepLearningExamples in May 2022, file
TensorFlow2/Recommendation/WideAndDeep/data/outbrain/features.py.
"""

from __future__ import annotations

NUMERIC = (
    "document_id_document_id_promo_sim_categories",  # cosine of page and ad, 0..1, as the next two
    "document_id_document_id_promo_sim_topics",
    "document_id_document_id_promo_sim_entities",
    "document_id_promo_ctr",  # clicks / displays, 0..1, as all _ctr
    "publisher_id_promo_ctr",
    "source_id_promo_ctr",
    "document_id_promo_count",  # logarithm of the displays, then mean 0 and deviation 1, as all _count
    "publish_time_days_since_published",  # log(1 + days), at most 3650 days
    "ad_id_ctr",
    "advertiser_id_ctr",
    "campaign_id_ctr",
    "ad_id_count",
    "publish_time_promo_days_since_published",
)
"""float32 [batch, 1] each."""

MULTI_HOT = ("topic_id_list", "entity_id_list", "category_id_list")
"""int32 [batch, HOTNESS] each: up to HOTNESS ids of the page, the rest PADDING."""

HOTNESS = 3
PADDING = -1

Tables = dict[str, tuple[int, int]]
"""Categorical column -> rows and width of its table in the deep part; the wide part's has width 1."""

PUBLISHED: Tables = {
    "ad_id": (250_000, 128),
    "document_id": (300_000, 128),
    "platform": (4, 19),
    "document_id_promo": (100_000, 128),
    "campaign_id": (5_000, 128),
    "advertiser_id": (2_500, 64),
    "source_id": (4_000, 64),
    "geo_location": (2_500, 64),
    "geo_location_country": (300, 64),
    "geo_location_state": (2_000, 64),
    "publisher_id": (1_000, 64),
    "source_id_promo": (4_000, 64),
    "publisher_id_promo": (1_000, 64),
    "topic_id_list": (350, 64),
    "entity_id_list": (10_000, 64),
    "category_id_list": (100, 64),
}

TINY: Tables = {
    "ad_id": (240, 8),
    "document_id": (300, 8),
    "platform": (4, 4),
    "document_id_promo": (120, 8),
    "campaign_id": (48, 8),
    "advertiser_id": (16, 8),
    "source_id": (30, 4),
    "geo_location": (40, 4),
    "geo_location_country": (5, 4),
    "geo_location_state": (20, 4),
    "publisher_id": (15, 4),
    "source_id_promo": (24, 4),
    "publisher_id_promo": (12, 4),
    "topic_id_list": (24, 8),
    "entity_id_list": (60, 8),
    "category_id_list": (8, 4),
}

ONE_HOT = tuple(column for column in PUBLISHED if column not in MULTI_HOT)
"""int32 [batch, 1] each."""

LABEL, DISPLAY = "clicked", "display_id"

OUTPUT = "wide_deep_model"
"""Click probability, float32 [batch, 1]."""


def tables_of(feature_set: str) -> Tables:
    """The tables of `published` or `tiny`; raises ValueError on another name."""
    sets = {"published": PUBLISHED, "tiny": TINY}
    if feature_set not in sets:
        raise ValueError(f"feature_set {feature_set!r}: expected {' or '.join(sets)}")
    return sets[feature_set]
