"""The tables, as a list of migrations: a database of version n has had the first n of them.

Written once for both databases; the two words in capitals that differ are replaced by each (`Database.words`).
A migration that has been released is never edited: add another.
"""

from __future__ import annotations

import re

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE rankers (
        id SERIAL_KEY,
        name TEXT NOT NULL UNIQUE,
        config TEXT NOT NULL,
        limits TEXT NOT NULL,
        secret TEXT NOT NULL,
        frozen BIGINT NOT NULL DEFAULT 0,
        pinned BIGINT,
        next_number BIGINT NOT NULL DEFAULT 0,
        log_seq BIGINT NOT NULL DEFAULT 0,
        base BIGINT NOT NULL DEFAULT 0,
        feedback_count BIGINT NOT NULL DEFAULT 0,
        created DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE heads (
        ranker_id BIGINT PRIMARY KEY REFERENCES rankers(id) ON DELETE CASCADE,
        version BIGINT NOT NULL,
        applied BIGINT NOT NULL,
        learned BIGINT NOT NULL,
        skipped BIGINT NOT NULL,
        digest TEXT NOT NULL,
        updated DOUBLE PRECISION NOT NULL,
        open_count BIGINT NOT NULL DEFAULT 0
    );
    CREATE TABLE snapshots (
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        version BIGINT NOT NULL,
        learned BIGINT NOT NULL,
        skipped BIGINT NOT NULL,
        digest TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        kept BIGINT NOT NULL DEFAULT 0,
        body BYTES NOT NULL,
        PRIMARY KEY (ranker_id, version)
    );
    CREATE TABLE impressions (
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        number BIGINT NOT NULL,
        token TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        closes DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        collecting BIGINT NOT NULL DEFAULT 0,
        version BIGINT NOT NULL,
        query_id TEXT,
        ids TEXT NOT NULL,
        body BYTES NOT NULL,
        PRIMARY KEY (ranker_id, number)
    );
    CREATE INDEX impressions_expires ON impressions (expires);
    CREATE INDEX impressions_closes ON impressions (closes) WHERE collecting = 1;
    CREATE TABLE events (
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        number BIGINT NOT NULL,
        event_id TEXT NOT NULL,
        position BIGINT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (ranker_id, number, event_id)
    );
    CREATE TABLE log (
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        seq BIGINT NOT NULL,
        kind TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        target BIGINT,
        number BIGINT,
        token TEXT,
        served DOUBLE PRECISION,
        version BIGINT,
        query_id TEXT,
        ids TEXT,
        clicks BYTES,
        body BYTES,
        PRIMARY KEY (ranker_id, seq),
        UNIQUE (ranker_id, number)
    );
    CREATE TABLE keys (
        name TEXT PRIMARY KEY,
        roles TEXT NOT NULL,
        digest TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL
    );
    CREATE TABLE audit (
        id SERIAL_KEY,
        created DOUBLE PRECISION NOT NULL,
        actor TEXT NOT NULL,
        act TEXT NOT NULL,
        subject TEXT NOT NULL,
        detail TEXT NOT NULL
    );
    """,
    "",  # made two tables that the next one drops; a store may have stopped between
    """
    DROP TABLE IF EXISTS shown;
    DROP TABLE IF EXISTS clicked;
    ALTER TABLE heads ADD COLUMN set_aside BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE heads ADD COLUMN stopped TEXT;
    CREATE TABLE set_aside (
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        seq BIGINT NOT NULL,
        reason TEXT NOT NULL,
        PRIMARY KEY (ranker_id, seq)
    );
    """,
    """
    CREATE TABLE experiments (
        id SERIAL_KEY,
        name TEXT NOT NULL UNIQUE,
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        definition TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        ended DOUBLE PRECISION
    );
    CREATE TABLE clients (
        experiment_id BIGINT NOT NULL REFERENCES experiments(id) ON DELETE CASCADE,
        client BIGINT NOT NULL,
        PRIMARY KEY (experiment_id, client)
    );
    CREATE TABLE trials (
        ranker_id BIGINT NOT NULL REFERENCES rankers(id) ON DELETE CASCADE,
        experiment_id BIGINT NOT NULL,
        state TEXT NOT NULL,
        base TEXT,
        base_seq BIGINT NOT NULL DEFAULT 0,
        PRIMARY KEY (ranker_id, experiment_id)
    );
    CREATE TABLE launches (
        ranker_id BIGINT PRIMARY KEY REFERENCES rankers(id) ON DELETE CASCADE,
        mode TEXT NOT NULL,
        epoch BIGINT NOT NULL,
        decided TEXT NOT NULL,
        most_lost DOUBLE PRECISION NOT NULL,
        share DOUBLE PRECISION NOT NULL DEFAULT 0,
        looked DOUBLE PRECISION NOT NULL DEFAULT 0,
        breaches BIGINT NOT NULL DEFAULT 0
    );
    ALTER TABLE impressions ADD COLUMN experiment_id BIGINT;
    ALTER TABLE impressions ADD COLUMN client BIGINT;
    ALTER TABLE impressions ADD COLUMN share DOUBLE PRECISION;
    ALTER TABLE impressions ADD COLUMN held BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE impressions ADD COLUMN clicks BYTES;
    ALTER TABLE impressions ADD COLUMN trial TEXT;
    ALTER TABLE impressions ADD COLUMN candidates BYTES;
    ALTER TABLE log ADD COLUMN experiment_id BIGINT;
    ALTER TABLE log ADD COLUMN counts BIGINT;
    ALTER TABLE log ADD COLUMN trial TEXT;
    ALTER TABLE log ADD COLUMN candidates BYTES;
    CREATE INDEX impressions_share ON impressions (ranker_id, created, share) WHERE share IS NOT NULL;
    """,
    """
    ALTER TABLE events ADD COLUMN kind TEXT NOT NULL DEFAULT 'click';
    ALTER TABLE log ADD COLUMN signals TEXT;
    """,
)

VERSION = len(MIGRATIONS)

# Versions whose models were made by a program that learned in another way.
OLD_MODELS = (1, 2, 3)

# In the order in which they were made, in which rows can be copied without breaking a reference.
TABLES = tuple(re.findall(r"CREATE TABLE (\w+)", "".join(MIGRATIONS)))
