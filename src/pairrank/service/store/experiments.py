"""Experiments: their frozen definitions, and what the log has shown of them as the learner last left it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pairrank.errors import InputError, UnknownNameError
from pairrank.service.store.rankers import RankerTables
from pairrank.service.store.values import ConflictError, ExperimentRow, RankerRow, VersionError
from pairrank.trials.experiment import Arm, Definition, room

_EXPERIMENT = """
    SELECT e.id, e.name, e.ranker_id, e.definition, e.created, e.ended, t.state
    FROM experiments e LEFT JOIN trials t ON t.ranker_id = e.ranker_id AND t.experiment_id = e.id
"""


class ExperimentTables(RankerTables):
    """Experiments as wholes, and the states that the learner keeps of them."""

    def define(
        self, wanted: Definition, now: float, actor: str, *, learn_if_able: bool = False
    ) -> tuple[ExperimentRow, bool]:
        """The experiment of this name and whether it is new; another definition under the name is refused.

        Its share begins where the running experiments on the same ranker's requests leave room. With ``learn_if_able``
        it learns where that ranker rightly can.
        """
        with self.database.transaction():
            owner, definition = self._resolved(wanted, learn_if_able)
            found = self._experiments("WHERE e.name = ?", (wanted.name,))
            if found:
                if replace(found[0].definition, start=0.0) != replace(definition, start=0.0):
                    raise ConflictError(
                        f"experiment {wanted.name!r} exists with another definition, and definitions are frozen: "
                        "choose another name"
                    )
                return found[0], False
            running = self._experiments("WHERE e.ended IS NULL AND e.ranker_id = ?", (owner.id,))
            definition = replace(definition, start=room(definition.share, [row.definition for row in running]))
            text = json.dumps(asdict(definition), sort_keys=True)
            row = {"name": definition.name, "ranker_id": owner.id, "definition": text, "created": now}
            self.database.insert("experiments", row)
            self._record(now, actor, "experiment", definition.name, text)
            return self.experiment(wanted.name), True

    def _resolved(self, wanted: Definition, learn_if_able: bool) -> tuple[RankerRow, Definition]:
        """Whose requests take part, and the definition with everything that acts; its pinned versions are kept."""
        named = [wanted.ranker, *(arm.ranker for arm in wanted.arms)]
        name = next((name for name in named if name is not None), None)
        if name is None:
            raise InputError('both arms are as-sent; say with "ranker" whose requests take part')
        owner = self._arm(Arm(name), lock=True)  # so that two never take the same share
        for arm in wanted.arms:
            if arm.ranker is not None:
                other = self._arm(arm)
                if other.config.n_features != owner.config.n_features:
                    raise InputError(
                        f"arm {str(arm)!r} takes {other.config.n_features} features per document and {name!r} "
                        f"{owner.config.n_features}; both must rank the same documents"
                    )
        able = owner.config.make().any_list
        if wanted.learn and not able and not learn_if_able:
            raise InputError(
                f"ranker {name!r} ({owner.config.ranker}) cannot learn from lists that it did not draw alone; "
                'send "learn": false'
            )
        return owner, replace(wanted, ranker=name, learn=wanted.learn and able)

    def _arm(self, arm: Arm, *, lock: bool = False) -> RankerRow:
        try:
            found = self.ranker(str(arm.ranker), lock=lock)
            if arm.version is not None:
                self._keep(found, arm.version)
        except (UnknownNameError, VersionError) as problem:
            raise InputError(f"arm {str(arm)!r} is unknown: {problem}") from None
        return found

    def end(self, name: str, now: float, actor: str) -> ExperimentRow:
        """Stop an experiment: nobody takes part any more; lists that were served still count when they come back."""
        with self.database.transaction():
            changed = self.database.all(
                "UPDATE experiments SET ended = ? WHERE name = ? AND ended IS NULL RETURNING id", (now, name)
            )
            if changed:
                self._record(now, actor, "stop", name, "{}")
            return self.experiment(name)

    def experiment(self, name: str) -> ExperimentRow:
        found = self._experiments("WHERE e.name = ?", (name,))
        if not found:
            raise UnknownNameError(f"no experiment is called {name[:70]!r}")
        return found[0]

    def experiments(self, limit: int = 100) -> list[ExperimentRow]:
        """The newest experiments and all that take lists, newest first."""
        newest = "SELECT id FROM experiments ORDER BY id DESC LIMIT ?"
        return self._experiments(f"WHERE e.ended IS NULL OR e.id IN ({newest}) ORDER BY e.id DESC", (limit,))

    def running(self) -> list[ExperimentRow]:
        return self._experiments("WHERE e.ended IS NULL ORDER BY e.id")

    def experiments_of(self, ranker_id: int) -> list[ExperimentRow]:
        """The experiments on one ranker's requests, ended ones too."""
        return self._experiments("WHERE e.ranker_id = ? ORDER BY e.id", (ranker_id,))

    def delete(self, name: str, now: float, actor: str) -> bool:
        """Forget a ranker with its log, models, impressions and experiments; False when there was none."""
        with self.database.transaction():
            # The head first, as `publish` does: two that wait for each other would both be held up.
            of_name = "ranker_id = (SELECT id FROM rankers WHERE name = ?)"
            self.database.all(f"UPDATE heads SET applied = applied WHERE {of_name}", (name,))
            found = self.find(name, lock=True)
            if found is None:
                return False
            for row in self.running():
                if name in (row.definition.ranker, *(arm.ranker for arm in row.definition.arms)):
                    raise ConflictError(
                        f"experiment {row.name!r} runs and needs ranker {name!r}: stop the experiment first"
                    )
            self.database.all("DELETE FROM rankers WHERE id = ?", (found.id,))
            self._record(now, actor, "delete", name, f'{{"log_seq": {found.log_seq}}}')
            return True

    def arm_versions(self, ranker: RankerRow) -> set[int]:
        """The versions of a ranker that running experiments show."""
        arms = [arm for row in self.running() for arm in row.definition.arms]
        return {arm.version for arm in arms if arm.ranker == ranker.name and arm.version is not None}

    # What the log has shown. Experiment 0 is the launch.

    def trial_states(self, ranker_id: int) -> dict[int, str]:
        """The states after the last entry that was published, by experiment."""
        return dict(self.database.all("SELECT experiment_id, state FROM trials WHERE ranker_id = ?", (ranker_id,)))

    def trial_bases(self, ranker_id: int) -> dict[int, tuple[int, str | None]]:
        """For each experiment the entry that its state can be counted from, and the state there; see `compact`."""
        rows = self.database.all("SELECT experiment_id, base_seq, base FROM trials WHERE ranker_id = ?", (ranker_id,))
        return {key: (int(seq), base) for key, seq, base in rows}

    def _put_states(self, ranker_id: int, states: Mapping[int, str]) -> None:
        self.database.many(
            "INSERT INTO trials (ranker_id, experiment_id, state) VALUES (?, ?, ?) "
            "ON CONFLICT (ranker_id, experiment_id) DO UPDATE SET state = excluded.state",
            [(ranker_id, key, state) for key, state in states.items()],
        )

    def _rebase_states(self, ranker_id: int) -> None:
        """From now on states are counted from where they stand: the log before is about to go."""
        self.database.all(
            "UPDATE trials SET base = state, base_seq = (SELECT applied FROM heads WHERE ranker_id = ?) "
            "WHERE ranker_id = ?",
            (ranker_id, ranker_id),
        )

    def _experiments(self, where: str, values: tuple[Any, ...] = ()) -> list[ExperimentRow]:
        rows = self.database.named(f"{_EXPERIMENT} {where}", values)
        for row in rows:
            row["definition"] = Definition(**json.loads(row["definition"]))
            row["state"] = None if row["state"] is None else json.loads(row["state"])
        return [ExperimentRow(**row) for row in rows]
