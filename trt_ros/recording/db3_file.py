"""SQLite files of rosbag2, also cut ones, in any journal mode."""

from array import array
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
import sqlite3
from urllib.parse import quote

import numpy as np

from trt_ros.recording.messages import Attachment, RecordedMessage, RecordedTopic, damaged


class Db3File:
    """
    An open SQLite file. Owns it until close(); see McapFile for its attributes.

    :raises BadFrameError: when it has no tables of rosbag2; also errors of SQLite.
    """

    compression = ''

    def __init__(self, path: Path) -> None:
        self._database = _connect(path)
        try:
            self.damage = ''
            self._read_topics()
            self._read_times()
        except BaseException:
            self._database.close()
            raise

    def _read_topics(self) -> None:
        columns = {name for _, name, *_ in self._database.execute('PRAGMA table_info(topics)')}
        if not columns:
            raise damaged('It has no tables of rosbag2, or they are cut off.')
        definitions = dict[str, tuple[str, bytes]]()
        with suppress(sqlite3.Error):  # Older files have no such table.
            for kind, encoding, text in self._database.execute(
                'SELECT topic_type, encoding, encoded_message_definition FROM message_definitions'
            ):
                definitions[kind] = encoding, text.encode()
        qos = 'offered_qos_profiles' if 'offered_qos_profiles' in columns else "''"
        self.topics = {
            number: RecordedTopic(
                name,
                kind,
                0,
                *definitions.get(kind, ('', b'')),
                {'offered_qos_profiles': profiles} if profiles else {},
                encoding,
            )
            for number, name, kind, encoding, profiles in self._database.execute(
                f'SELECT id, name, type, serialization_format, {qos} FROM topics ORDER BY id'
            )
        }

    def _read_times(self) -> None:
        numbers, topics, times = array('q'), array('q'), array('q')
        try:
            for number, topic, time in self._database.execute(
                'SELECT id, topic_id, timestamp FROM messages'
            ):
                if not isinstance(time, int):  # SQLite stores anything.
                    self.damage = f'A message has the time {time!r}.'
                    continue
                numbers.append(number)
                topics.append(topic)
                times.append(time)
        except sqlite3.Error as error:
            self.damage = f'{error}: the file is cut or damaged.'
        order = np.lexsort([numbers, times])
        self._numbers, self._topics, self._times = (
            np.array(each, np.int64)[order] for each in (numbers, topics, times)
        )
        for number, topic in self.topics.items():
            self.topics[number] = replace(topic, count=int((self._topics == number).sum()))
        self.start_ns, self.end_ns = (int(self._times[at]) if times else 0 for at in (0, -1))

    def messages(self, topics: Set[str], start_ns: int, end_ns: int) -> Iterator[RecordedMessage]:
        """Yield the messages of topics from `start_ns` to before `end_ns`, in order of time."""
        chosen = [number for number, each in self.topics.items() if each.name in topics]
        first, last = np.searchsorted(self._times, [start_ns, end_ns])
        places = first + np.flatnonzero(np.isin(self._topics[first:last], chosen))
        for place in places:
            number, time_ns = int(self._numbers[place]), int(self._times[place])
            query = 'SELECT data FROM messages WHERE id = ?'
            ((data,),) = self._database.execute(query, [number]).fetchall()
            topic = self.topics[int(self._topics[place])].name
            yield RecordedMessage(topic, time_ns, np.frombuffer(data, np.uint8), time_ns, 0)

    def attachments(self) -> Iterator[Attachment]:
        """Yield nothing."""
        return iter(())

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._database.close()


def _connect(path: Path) -> sqlite3.Connection:
    has_log = Path(f'{path}-wal').exists()
    # A log needs shared memory in a writable folder; without one, nothing is written there.
    for mode in ['mode=ro', 'immutable=1'] if has_log else ['immutable=1']:
        database = sqlite3.connect(
            f'file:{quote(str(path))}?{mode}', uri=True, check_same_thread=False
        )
        try:
            database.execute('PRAGMA writable_schema=ON')  # Opens a file that is cut, too.
            database.execute('SELECT count(*) FROM sqlite_master').fetchall()
        except sqlite3.Error:
            database.close()
            if mode == 'immutable=1':
                raise
            continue
        break
    return database
