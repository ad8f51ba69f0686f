"""A small scanner for clang-formatted C++: finds functions with their length, parameters and nesting.

It is no parser. It blanks comments, literals and preprocessor lines, then follows braces and judges each by the text
before it. Formatting helps: a body's brace has a space before it, a brace initialiser's usually has not.
"""

import dataclasses
import re

_LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\\s]{0,16})\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)


def _keep_lines(text):
    return re.sub(r"[^\n]", " ", text)


def without_comments(text):
    """`text` with comments blanked and everything else in place."""
    return _LITERAL.sub(lambda m: _keep_lines(m[0]) if m[0].startswith("/") else m[0], text)


def blank(text):
    """`text` with comments, literals and preprocessor lines blanked; quotes of literals stay."""

    def replace(match):
        literal = match[0]
        if literal.startswith("/"):
            return _keep_lines(literal)
        return literal[0] + _keep_lines(literal[1:-1]) + literal[-1]

    return _DIRECTIVE.sub(lambda m: _keep_lines(m[0]), _LITERAL.sub(replace, text))


@dataclasses.dataclass
class Function:
    name: str
    line: int  # of the opening brace, or of a declaration's end
    lines: int  # of the body, 0 for a declaration
    parameters: int
    nesting: int


@dataclasses.dataclass
class _Scope:
    kind: str  # namespace, type, function, lambda, block, init
    line: int
    head: str  # the statement so far, in which an initialiser's end goes on
    function: Function = None
    depth: int = 0  # of blocks inside the function or lambda


_TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:typedef\s+|static\s+|const\s+|constexpr\s+|friend\s+)*(?:class|struct|union|enum)\b")
_AFTER_PARAMETERS = re.compile(
    r"\)\s*(?:const|noexcept|override|final|mutable|&&?|->\s*[\w:<>,&*\s]+|[A-Z][A-Z_]+\([^()]*\)|:\s.*|requires\b.*|\s)*$",
    re.DOTALL,
)
_LAMBDA = re.compile(r"\[[^\[\]]*\]\s*(?:<[^>]*>\s*)?(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?\s*(?:mutable|noexcept|constexpr|->\s*[\w:<>,&*\s]+|\s)*$", re.DOTALL)
_BLOCK = re.compile(r"^(?:\}?\s*)?(?:if|for|while|do|else|switch|try|catch)\b|^$|^(?:case\b.*|default\s*):$", re.DOTALL)


def _parameters(head):
    """(name, number of parameters) of the first parameter list in `head` outside template brackets; (None, 0)."""
    angle = 0
    i = 0
    while i < len(head):
        c = head[i]
        if c == "<" and not head[:i].rstrip().endswith("operator"):
            angle += 1
        elif c == ">" and head[i - 1] != "-" and angle > 0:
            angle -= 1
        elif c == "(" and angle == 0:
            name = re.search(r"(operator\s*\S+|[~\w]+)\s*$", head[:i])
            if head[i : i + 2] == "()" and head[:i].endswith("operator"):
                i += 2
                continue
            return (name[1] if name else None), _count_arguments(head[i:])
        i += 1
    return None, 0


def _count_arguments(text):
    """Parameters of a list that begins with its opening parenthesis."""
    depth = 0
    commas = 0
    inner = ""
    for i, c in enumerate(text):
        if c in "([{<":
            depth += 1
        elif c in ")]}" or (c == ">" and text[i - 1] != "-"):
            depth -= 1
            if depth == 0:
                break
        elif c == "," and depth == 1:
            commas += 1
        if i > 0:
            inner += c
    inner = inner.strip()
    return 0 if inner in ("", "void") else commas + 1


class _Scanner:
    def __init__(self, text):
        self.text = blank(text)
        self.functions = []
        self.scopes = []
        self.head = ""
        self.line = 1

    def inner(self):
        """The innermost function or lambda around this point."""
        for scope in reversed(self.scopes):
            if scope.kind in ("function", "lambda"):
                return scope
            if scope.kind == "type":
                return None
        return None

    def classify(self):
        head = self.head.strip()
        glued = self.head and not self.head[-1].isspace()
        if self.scopes and self.scopes[-1].kind == "init":
            return "lambda" if not glued and _LAMBDA.search(self.head) else "init"
        if re.search(r"\bnamespace\b[^()=]*$", head) or re.match(r'extern\s*"', head):
            return "namespace"
        if _TYPE.match(head) and not re.search(r"[=)]\s*$", head) and not glued:
            return "type"
        if self.inner() is not None:
            if _BLOCK.match(head) and not _LAMBDA.search(head):
                return "block"
            return "lambda" if not glued and _LAMBDA.search(self.head) else "init"
        if glued or head.endswith("=") or head.endswith(","):
            return "init"
        if _LAMBDA.search(head) and "=" in head:
            return "lambda"
        if self.open_parentheses(head) == 0 and _AFTER_PARAMETERS.search(head):
            return "function"
        return "init"

    @staticmethod
    def open_parentheses(head):
        return head.count("(") - head.count(")")

    def open_brace(self):
        kind = self.classify()
        function = None
        depth = 0
        if kind in ("function", "lambda"):
            name, parameters = _parameters(self.signature())
            function = Function(name if kind == "function" else "lambda", self.line, 0, parameters, 0)
        elif kind == "block":
            owner = self.inner()
            owner.depth += 1
            owner.function.nesting = max(owner.function.nesting, owner.depth)
        self.scopes.append(_Scope(kind, self.line, self.head, function, depth))
        self.head = ""

    def signature(self):
        head = self.head.strip()
        lambda_head = _LAMBDA.search(head)
        if self.inner() is not None and lambda_head:
            return re.sub(r"^\[[^\[\]]*\]", "f", head[lambda_head.start() :])
        return re.sub(r"^(?:template\s*<[^{}]*?>\s*)+(?=[\w:~\[])", "", head)

    def close_brace(self):
        if not self.scopes:
            return
        scope = self.scopes.pop()
        if scope.function is not None:
            scope.function.lines = self.line - scope.line + 1
            self.functions.append(scope.function)
        elif scope.kind == "block":
            self.inner().depth -= 1
        self.head = scope.head + "{}" if scope.kind in ("init", "lambda") else ""

    def end_statement(self):
        """A semicolon outside functions may end a declaration of one."""
        head = self.head.strip()
        if self.inner() is None and "(" in head and not head.startswith(("using", "return", "typedef")):
            signature = self.signature()
            before = signature.split("(")[0]
            if "=" not in before or "operator" in before:
                name, parameters = _parameters(signature)
                self.functions.append(Function(name, self.line, 0, parameters, 0))
        self.head = ""

    def run(self):
        parentheses = 0  # a for's semicolons end no statement
        stack = []
        for c in self.text:
            if c == "{":
                self.open_brace()
                stack.append(parentheses)
                parentheses = 0
                continue
            if c == "}":
                self.close_brace()
                parentheses = stack.pop() if stack else 0
                continue
            parentheses += (c == "(") - (c == ")")
            if c == ";" and parentheses <= 0:
                self.end_statement()
            elif c == ":" and re.search(r"(?:^|\s)(?:public|private|protected|default|case\b[^?]*)$", self.head) and not self.head.endswith(":"):
                self.head = ""
            else:
                self.head += c if not (c == "\n" and not self.head.strip()) else ""
            if c == "\n":
                self.line += 1
        return self.functions


def functions(text):
    """Every function, lambda and declaration in `text`, in the order in which they end."""
    return _Scanner(text).run()
