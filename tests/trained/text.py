"""What the checkpoints read: short scenes, each told in English, Korean, emoji or Python, from a seeded generator.

A scene is drawn at random, and its first sentence names all of it; what follows is determined but for the choice of a
verb. So a small model can learn to go on from a scene that it never saw. One scene in eight is held out of training.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass

END = "<|end|>"

_HELD_OUT_ONE_IN = 8
_MOST = 5


@dataclass(frozen=True)
class Noun:
    """One thing in the three spellings that a scene may use."""

    english: str
    korean: str
    emoji: str


@dataclass(frozen=True)
class Scene:
    """Someone of a colour who has ``count`` fruits, and a friend who gets them one by one."""

    colour: Noun
    owner: Noun
    friend: Noun
    fruit: Noun
    count: int

    @property
    def held_out(self) -> bool:
        """Whether training never shows this scene, in no language."""
        # crc32 and not hash(): the same in every process.
        return zlib.crc32(repr(astuple(self)).encode()) % _HELD_OUT_ONE_IN == 0


@dataclass(frozen=True)
class Document:
    """A scene as text: ``prompt`` names it, ``rest`` is how it goes on."""

    language: str
    prompt: str
    rest: str


_COLOURS = (
    Noun("red", "빨간", "🔴"),
    Noun("blue", "파란", "🔵"),
    Noun("green", "초록", "🟢"),
    Noun("yellow", "노란", "🟡"),
    Noun("white", "하얀", "⚪"),
    Noun("black", "검은", "⚫"),
)
_ANIMALS = (
    Noun("fox", "여우", "🦊"),
    Noun("owl", "부엉이", "🦉"),
    Noun("bear", "곰", "🐻"),
    Noun("cat", "고양이", "🐱"),
    Noun("dog", "강아지", "🐶"),
    Noun("rabbit", "토끼", "🐰"),
    Noun("tiger", "호랑이", "🐯"),
    Noun("frog", "개구리", "🐸"),
)
_FRUITS = (
    Noun("apple", "사과", "🍎"),
    Noun("pear", "배", "🍐"),
    Noun("lemon", "레몬", "🍋"),
    Noun("melon", "멜론", "🍈"),
    Noun("grape", "포도", "🍇"),
    Noun("banana", "바나나", "🍌"),
)


def training_documents(count: int, seed: int) -> Iterator[Document]:
    """Documents of scenes that are not held out, the languages in turn; the same seed gives the same text."""
    return _documents(count, seed, held_out=False)


def held_out_documents(count: int, seed: int = 0) -> Iterator[Document]:
    """Documents of scenes that training never shows, the languages in turn."""
    return _documents(count, seed, held_out=True)


def _documents(count: int, seed: int, held_out: bool) -> Iterator[Document]:
    source = random.Random(seed)
    tellers = list(_TELLERS.items())
    for number in range(count):
        language, tell = tellers[number % len(tellers)]
        scene = _scene(source)
        while scene.held_out is not held_out:
            scene = _scene(source)
        prompt, rest = tell(scene, source)
        yield Document(language, prompt, rest)


def _scene(source: random.Random) -> Scene:
    owner, friend = source.sample(_ANIMALS, 2)
    return Scene(source.choice(_COLOURS), owner, friend, source.choice(_FRUITS), source.randint(1, _MOST))


def _english(scene: Scene, source: random.Random) -> tuple[str, str]:
    owner, friend, fruit = (
        f"the {scene.colour.english} {scene.owner.english}",
        scene.friend.english,
        scene.fruit.english,
    )
    verb = source.choice(("gives", "brings", "throws"))

    def counted(number: int) -> str:
        return f"{number} {fruit}" if number == 1 else f"{number} {fruit}s"

    rest = []
    for left in reversed(range(scene.count)):
        rest.append(f" It {verb} one {fruit} to the {friend}. Now {owner} has {counted(left)}.")
    rest.append(f" The {friend} says thank you!")
    return f"{owner.capitalize()} has {counted(scene.count)} for the {friend}.", "".join(rest)


def _korean(scene: Scene, source: random.Random) -> tuple[str, str]:
    owner, friend, fruit = f"{scene.colour.korean} {scene.owner.korean}", scene.friend.korean, scene.fruit.korean
    verb = source.choice(("줍니다", "보냅니다", "던집니다"))
    rest = []
    for left in reversed(range(scene.count)):
        rest.append(f" {friend}에게 {fruit} 한 개를 {verb}. 이제 {_topic(owner)} {fruit} {left}개가 있습니다.")
    rest.append(f" {_topic(friend)} 고맙다고 말합니다!")
    return f"{_topic(owner)} {friend}에게 줄 {fruit} {scene.count}개가 있습니다.", "".join(rest)


def _topic(noun: str) -> str:
    """The noun with its topic particle: 은 after a final consonant, else 는."""
    final_consonant = (ord(noun[-1]) - 0xAC00) % 28
    return noun + ("은" if final_consonant else "는")


def _emoji(scene: Scene, source: random.Random) -> tuple[str, str]:
    def line(left: int) -> str:
        kept, given = scene.fruit.emoji * left, scene.fruit.emoji * (scene.count - left)
        return f"{scene.colour.emoji}{scene.owner.emoji} {kept} ➡ {scene.friend.emoji} {given}\n"

    rest = [line(left) for left in reversed(range(scene.count))]
    mood = source.choice("😀🥳🎉")
    return line(scene.count), "".join(rest) + f"{scene.friend.emoji} {mood}{mood}{mood}\n"


def _python(scene: Scene, source: random.Random) -> tuple[str, str]:
    owner, friend, fruit = f"{scene.colour.english}_{scene.owner.english}", scene.friend.english, scene.fruit.english
    verb = source.choice(("give", "bring", "throw"))
    prompt = f'{owner} = {{"{fruit}": {scene.count}}}\n{friend} = {{"{fruit}": 0}}\n'
    rest = [f'\ndef {verb}(n):\n    {owner}["{fruit}"] -= n\n    {friend}["{fruit}"] += n\n']
    for given in range(1, min(scene.count, 2) + 1):
        rest.append(f'\n{verb}(1)\nassert {owner}["{fruit}"] == {scene.count - given}\n')
        rest.append(f'assert {friend}["{fruit}"] == {given}\n')
    return prompt, "".join(rest)


_TELLERS: dict[str, Callable[[Scene, random.Random], tuple[str, str]]] = {
    "english": _english,
    "korean": _korean,
    "emoji": _emoji,
    "python": _python,
}
