"""Generated displays of ads with a known reason for every click, as Outbrain data for the tiny variant."""

from __future__ import annotations

import numpy as np
import polars as pl
from columns import DISPLAY, LABEL, NUMERIC, TINY
from numpy.typing import NDArray

ADS = 6  # of one display; one of them is clicked
TASTES = 3  # dimensions of a topic's subject and of a campaign's appeal
# Weights of the three reasons; chosen by trial, so that perfect knowledge of them gives an AUC near 0.89.
FAME, AFFINITY, FIT = 1.6, 1.3, 1.2
# A column that follows from another: the page's or the ad's id modulo the column's rows.
OF_PAGE = ("source_id", "publisher_id")
OF_AD = ("document_id_promo", "campaign_id", "advertiser_id", "source_id_promo", "publisher_id_promo")


class World:
    """The law of the clicks: the quality of each ad, and the topics that suit its campaign."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.fame = rng.normal(size=TINY["ad_id"][0])
        self.appeal = rng.normal(size=(TINY["campaign_id"][0], TASTES))
        self.topics = rng.normal(size=(TINY["topic_id_list"][0], TASTES))
        self.page_topics = rng.integers(TINY["topic_id_list"][0], size=(TINY["document_id"][0], 2))

    def reasons(
        self, ad: NDArray[np.int64], page: NDArray[np.int64], similarity: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Log-odds of a click, up to a constant of the display. All arguments [n].

        The wide part can learn the first term by heart, ad by ad; the second needs the page and the campaign
        together; the third is a smooth curve of a number, best in the middle.
        """
        taste = self.topics[self.page_topics[page]].mean(axis=1)
        affinity = (taste * self.appeal[ad % TINY["campaign_id"][0]]).sum(axis=1)
        fit = np.cos(2 * np.pi * (similarity - 0.5))
        reasons: NDArray[np.float64] = FAME * self.fame[ad] + AFFINITY * affinity + FIT * fit
        return reasons


def make_clicks(world: World, displays: int, first_display: int, rng: np.random.Generator) -> pl.DataFrame:
    """`displays` times ADS rows with every published column; display ids count up from `first_display`.

    Of the numeric columns only the topics' similarity has to do with the clicks, the others are noise.
    """
    rows = displays * ADS
    page = np.repeat(rng.integers(TINY["document_id"][0], size=displays), ADS)
    ad = np.concatenate([rng.choice(TINY["ad_id"][0], size=ADS, replace=False) for _ in range(displays)])
    columns: dict[str, object] = {name: rng.uniform(size=rows) for name in NUMERIC}
    similarity = rng.uniform(size=rows)
    columns["document_id_document_id_promo_sim_topics"] = similarity
    columns["publish_time_days_since_published"] = np.repeat(rng.uniform(size=displays), ADS)  # the page's
    # Adding such noise to the log-odds and taking the largest draws one ad with the softmax' probabilities.
    noisy = world.reasons(ad, page, similarity) + rng.gumbel(size=rows)
    clicked = np.zeros((displays, ADS), dtype=np.int64)
    clicked[np.arange(displays), noisy.reshape(displays, ADS).argmax(axis=1)] = 1

    columns |= {"document_id": page, "ad_id": ad}
    columns |= {name: page % TINY[name][0] for name in OF_PAGE} | {name: ad % TINY[name][0] for name in OF_AD}
    place = np.repeat(rng.integers(TINY["geo_location"][0], size=displays), ADS)
    columns["platform"] = np.repeat(rng.integers(TINY["platform"][0], size=displays), ADS)
    columns["geo_location"] = place
    columns["geo_location_state"] = place % TINY["geo_location_state"][0]
    columns["geo_location_country"] = place % TINY["geo_location_country"][0]
    columns["topic_id_list"] = world.page_topics[page].tolist()
    columns["category_id_list"] = (page[:, None] % TINY["category_id_list"][0]).tolist()
    # 0 to 2 entities, so that empty lists occur too.
    entities = TINY["entity_id_list"][0]
    columns["entity_id_list"] = [[(p + step) % entities for step in range(p % 3)] for p in page.tolist()]
    columns[LABEL] = clicked.ravel()
    columns[DISPLAY] = np.repeat(np.arange(first_display, first_display + displays), ADS)
    return pl.DataFrame(columns, schema_overrides={"entity_id_list": pl.List(pl.Int64)})
