"""Detects instructions to a model in several languages, polite ones included, by what a sentence is about.

A sentence is suspicious if it has a part of each kind of a rule: that earlier instructions do not hold, that a person
is not to know, or that a conversation or a secret is to be handed over. Words of a tool's own description alone do not
make one: they say what the tool does, and not what its reader should do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SENTENCE = re.compile(r"[^.!?;:\n。！？；：]+")
# Longer sentences are cut, so that a text without marks is not one sentence.
_LONGEST = 400

Rule = tuple[re.Pattern[str], ...]


def _rule(*parts: str) -> Rule:
    return tuple(re.compile(part) for part in parts)


def _words(text: str) -> str:
    """Return an alternation of words or stems, at the beginning of a word."""
    return rf"\b(?:{text})"


_RULES: tuple[Rule, ...] = (
    # English.
    _rule(
        _words(
            r"set(?:ting)? aside|put(?:ting)? aside|leav(?:e|ing) aside|no longer (?:apply|hold|count)|"
            r"do(?:es)? not apply|"
            r"don.?t apply|supersede|take(?:s)? (?:precedence|priority) over|ignore|disregard|forget|"
            r"outrank|replaced? by|"
            r"instead of following|rather than following|stop following"
        ),
        _words(
            r"(?:earlier|previous|prior|above|original|existing|system|other|your|all|any|preceding) (?:\w+ ){0,3}"
            r"(?:guidance|instruction|rule|prompt|direction|directive|guideline|constraint|restriction|"
            r"order|message)|"
            r"(?:what|everything|anything) (?:\w+ ){0,4}(?:told|instructed|asked) (?:before|earlier|"
            r"so far|previously)"
        ),
    ),
    _rule(
        _words(
            r"no need to|not necessary to|needn.?t|need not|refrain from|(?:leav(?:e|ing)|left) out|"
            r"please (?:do not|don.?t)|kindly (?:do not|don.?t)|"
            r"(?:would|might|is) (?:be )?(?:better|best) (?:not|if)|prefer (?:that )?you|rather you|"
            r"avoid|you should not|you shouldn.?t|"
            r"you must not|between (?:us|you and)|just between|to yourself|quietly|discreet"
        ),
        _words(
            r"mention|tell|bring(?:ing)? (?:this |it |that )?up|inform|let(?:ting)? |disclos|reveal|"
            r"refer(?:ence|ring)? to|word of|"
            r"know about|say(?:ing)? anything|draw(?:ing)? attention|bother|trouble|between us|to yourself|notic"
        ),
        _words(r"user|person|human|customer|client|operator|anyone|anybody|them\b|people|between us"),
    ),
    _rule(
        _words(
            r"send|forward|includ|copy|copying|attach|pass|shar(?:e|ing)|past(?:e|ing)|append|hand over|"
            r"put|provide|repeat|write out|upload"
        ),
        _words(
            r"(?:whole |full |entire |complete |recent |previous |earlier )*(?:conversation|chat|dialogue)|"
            r"system prompt|your (?:instructions|prompt)|"
            r"(?:\w+ )?(?:api |access |private |secret |ssh )?keys?\b|passwords?|credentials|secrets you|"
            r"environment variables"
        ),
        _words(
            r"please|kindly|you (?:should|must|can|could|have|know|need|were)|your\b|make sure|be sure|"
            r"remember to|would be (?:kind|nice|helpful|great)|"
            r"we (?:ask|appreciate)|it helps|don.?t forget"
        ),
        r"^(?!.*\byou (?:sent|send us|configured|created|registered)\b)",
    ),
    # German.
    _rule(
        _words(
            r"ignorier|missacht|vergiss|vergessen sie|au(?:ß|ss)er (?:acht|kraft)|nicht (?:mehr )?(?:zu )?(?:beachten|"
            r"befolgen|gelten)|gelten nicht|hinfällig|setz\w* dich über|setzen sie sich über|vorrang vor"
        ),
        _words(
            r"(?:system)?anweisung|instruktion|regel|vorgabe|(?:system)?prompt|aufforderung|befehl|\w*richtlinie|"
            r"(?:bisherig|vorherig|früher)\w* nachricht"
        ),
    ),
    _rule(
        _words(
            r"nicht|kein|ohne|niemals|nie\b|verschweig|verheimlich|geheim|für dich\b|diskret|braucht|"
            r"muss nicht|unerwähnt"
        ),
        _words(
            r"sag(?:e|en|st)?\b|erwähn|mitteil|mitzuteilen|teile?n?\b|informiere|informieren|erfahren|"
            r"erfährt|offenbar|verrat|verrätst|verschweig|verheimlich|unerwähnt|wissen|merk(?:en|t)|"
            r"geheim|hinzuweisen|darauf hin|zeige\b|behalt"
        ),
        _words(r"nutzer|benutzer|anwender|kund(?:e|in)|person|mensch|niemand|gegenüber|auftraggeber"),
        r"(?:\bbitte\b|\bdu\b|\bdich\b|\bsie\b|\bohne\b|\bniemals\b|\bnie\b|^\s*(?:sage?|erwähne?|"
        r"teile?|verrate?|informiere|verschweige?|verheimliche?|behalte?|zeige)\b)",
    ),
    _rule(
        _words(
            r"sende|schick|füge?\b|fügen|übermittle|übermitteln|leite?n?\b|kopiere|hänge?\b|hängen|gib\b|"
            r"geben sie|übergib|lade?\b|laden sie"
        ),
        _words(
            r"(?:gesamt|ganz|bisherig|vollständig)\w* (?:gespräch|unterhaltung|verlauf|chat)|gesprächsverlauf|"
            r"chatverlauf|passw(?:ort|örter)|zugangsdaten|(?:api-?|geheim\w* |privat\w* )?schlüssel|"
            r"geheimnis|systemprompt|umgebungsvariablen"
        ),
        _words(r"bitte|immer|zuerst|vorher|du\b|deine?\b|ihre?\b|stets|jedes mal|außerdem|dabei auch"),
    ),
    # French.
    _rule(
        _words(
            r"ignor(?:e|ez|er)\b|oubli(?:e|ez|er)\b|néglig|ten(?:ez|ir) pas compte|tiens pas compte|"
            r"(?:faites|fais|faire) abstraction|outrepass|ne s.appliquent (?:plus|pas)|priment sur|prime sur|"
            r"ne (?:suis|suivez) (?:plus|pas)|laiss\w+ de côté|ne valent plus"
        ),
        _words(r"instructions?|consignes?|règles?|directives?|invite système|messages? précédents?|ordres?|prompt"),
    ),
    _rule(
        r"(?:\bne\b|\bn'|\bn’|\bsans\b|\bjamais\b|\bévit|\bcach|\bsecret|\bdissimul|\binutile\b|"
        r"\bpréfér|\bdiscr|\bentre nous)",
        _words(
            r"dire|dites|dis\b|mentionn|informer|informez|révél|signal(?:er|ez)|préven|montr(?:er|ez)|"
            r"parl(?:er|ez)|cach|dissimul|avert|sache|savoir|évoqu|entre nous"
        ),
        _words(r"l.utilisat|utilisat|client|personne|usager|interlocut|humain|entre nous"),
        r"(?:\bvous\b|\bveuillez\b|\btu\b|\bmerci\b|\bs'il\b|\bsans\b|\bjamais\b|\binutile\b|ez\b|"
        r"\bdites\b|^\s*(?:ne |n.)(?:dis|mentionne|parle|révèle|montre)\b)",
    ),
    _rule(
        _words(r"envoy|transmet|joign|joindre|inclu(?:re|ez|s)\b|copi(?:e|ez|er)\b|ajout(?:e|ez|er)\b|partag|fourni"),
        _words(
            r"(?:toute |l.ensemble de )?(?:la |cette |votre )conversation|historique|mots? de passe|"
            r"identifiants|clés? (?:api|privée|secrète|d.accès)|vos secrets|invite système|jetons?"
        ),
        _words(r"vous|votre|vos|tu\b|tes\b|veuillez|toujours|d.abord|merci de|s.il|pensez à|n.oublie"),
    ),
    # Spanish.
    _rule(
        _words(
            r"ignor(?:a|e|en|ar)\b|olvid(?:a|e|ar)\b|descart(?:a|e|ar)\b|caso omiso|(?:tengas|tenga|"
            r"tener) en cuenta|omit(?:e|a|ir)\b|por alto|dej(?:a|e|ar) de lado|no (?:se aplican|valen|"
            r"rigen)|ya no (?:se aplican|valen|rigen)|prevalece|no (?:sigas|siga)"
        ),
        _words(r"instrucci|reglas|órdenes|indicaciones|directrices|mensajes? anterior|prompt|normas"),
    ),
    _rule(
        _words(r"no\b|sin\b|nunca|evit|ocult|secreto|preferi|discre|entre nosotros"),
        _words(
            r"dig(?:a|as)\b|decir|decirle|mencion|informes\b|informar|informe al|revel|muestr(?:es|e)\b|"
            r"mostrar|avis(?:es|e|ar)|cuent(?:es|e)\b|contar|contarle|comuniqu|ocult|sepa|saberlo|entre nosotros|"
            r"entere"
        ),
        _words(r"usuari|cliente|persona|nadie|interlocutor|entre nosotros"),
        _words(
            r"por favor|no (?:le |se |lo |hace )|sin\b|nunca|evit(?:a|e|ar)\b|ocult(?:a|e|ar)\b|debes?|"
            r"preferi|entre nosotros"
        ),
    ),
    _rule(
        _words(
            r"enví|envi(?:e|ar)|mand(?:a|e|ar)|adjunt(?:a|e|ar)|incluy(?:e|a)|incluir|copi(?:a|e|ar)\b|"
            r"reenví|pas(?:a|e|ar)\b|añad|compart"
        ),
        _words(
            r"(?:toda |esta )?la conversación|toda la conversación|esta conversación|historial|contraseñas?|"
            r"credenciales|claves? (?:de|privada|secreta|api)|tus secretos|tokens?"
        ),
        _words(r"por favor|siempre|primero|antes de|tus?\b|debes?|recuerd|asegúr|no olvid|también"),
    ),
    # Japanese.
    _rule(r"無視|忘れ|従わな|従う必要は|破棄|優先し|守らな", r"指示|命令|ルール|プロンプト|規則|指令|メッセージ"),
    _rule(
        r"ユーザ|利用者|お客様|人間|本人|誰に",
        r"伝えない|言わない|知らせない|教えない|秘密|見せない|報告しない|触れない|内緒|話さない|伝えず|知らせず|知られない|隠し|言及しない|知らせる必要は|伝える必要は|気づかれ|明かさない",
    ),
    _rule(
        r"送信し|送っ|送り|転送|添付|含め|渡し|コピーし|貼り付け|入力し",
        r"会話|履歴|パスワード|認証情報|秘密鍵|apiキー|システムプロンプト|環境変数",
        r"ください|下さい|必ず|お願い|忘れずに",
    ),
)


def addresses_reader(text: str) -> bool:
    """Return whether a text in lower case tells its reader to disobey, to conceal or to hand over something."""
    return any(_matches(sentence) for sentence in _sentences(text))


def _matches(sentence: str) -> bool:
    return any(all(part.search(sentence) for part in rule) for rule in _RULES)


def _sentences(text: str) -> Iterable[str]:
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        for start in range(0, len(sentence), _LONGEST):
            yield sentence[start : start + _LONGEST]
