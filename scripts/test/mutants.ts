/** Small faults in a source file, each of which a test should detect. */
import ts from "typescript";

export interface Mutant {
  start: number;
  end: number;
  /** Replaces the text from `start` to `end`. */
  text: string;
  line: number;
  /** The original code and its replacement, each on one line. */
  mutation: string;
}

const SWAPPED = new Map<ts.SyntaxKind, string>([
  [ts.SyntaxKind.LessThanToken, "<="],
  [ts.SyntaxKind.LessThanEqualsToken, "<"],
  [ts.SyntaxKind.GreaterThanToken, ">="],
  [ts.SyntaxKind.GreaterThanEqualsToken, ">"],
  [ts.SyntaxKind.EqualsEqualsEqualsToken, "!=="],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, "==="],
  [ts.SyntaxKind.AmpersandAmpersandToken, "||"],
  [ts.SyntaxKind.BarBarToken, "&&"],
  [ts.SyntaxKind.PlusToken, "-"],
  [ts.SyntaxKind.MinusToken, "+"],
  [ts.SyntaxKind.AsteriskToken, "/"],
  [ts.SyntaxKind.SlashToken, "*"],
  [ts.SyntaxKind.PercentToken, "*"],
  [ts.SyntaxKind.PlusEqualsToken, "-="],
  [ts.SyntaxKind.MinusEqualsToken, "+="],
]);
/** Methods whose arguments are positions. */
const SLICING = new Set(["slice", "subarray", "substring", "at", "charAt", "charCodeAt"]);
const SHOWN_CHARACTERS = 80;

export function findMutants(path: string, source: string): Mutant[] {
  const file = ts.createSourceFile(path, source, ts.ScriptTarget.Latest, true);
  const mutants: Mutant[] = [];
  const add = (node: ts.Node, text: string, shown: ts.Node = node) => {
    const start = node.getStart();
    const before = shown.getText();
    const at = start - shown.getStart();
    const after = `${before.slice(0, at)}${text}${before.slice(at + node.getText().length)}`;
    mutants.push({
      ...{ start, end: node.getEnd(), text },
      line: file.getLineAndCharacterOfPosition(start).line + 1,
      mutation: `${onOneLine(before)} -> ${onOneLine(after) || "nothing"}`,
    });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isInterfaceDeclaration(node)) return;
    mutateOperator(node, add);
    mutateCondition(node, add);
    mutateStatement(node, add);
    mutatePosition(node, add);
    ts.forEachChild(node, visit);
  };
  visit(file);
  return mutants;
}

type Add = (node: ts.Node, text: string, shown?: ts.Node) => void;

function mutateOperator(node: ts.Node, add: Add): void {
  if (ts.isBinaryExpression(node)) {
    const swapped = SWAPPED.get(node.operatorToken.kind);
    if (swapped !== undefined && !isConcatenation(node)) add(node.operatorToken, swapped, node);
  } else if (ts.isPostfixUnaryExpression(node) || ts.isPrefixUnaryExpression(node)) {
    const operand = node.operand.getText();
    const isPrefix = ts.isPrefixUnaryExpression(node);
    const counted = { [ts.SyntaxKind.PlusPlusToken]: "--", [ts.SyntaxKind.MinusMinusToken]: "++" };
    if (node.operator === ts.SyntaxKind.ExclamationToken) add(node, operand);
    else if (node.operator === ts.SyntaxKind.PlusPlusToken || node.operator === ts.SyntaxKind.MinusMinusToken)
      add(node, isPrefix ? `${counted[node.operator]}${operand}` : `${operand}${counted[node.operator]}`);
  } else if (node.kind === ts.SyntaxKind.TrueKeyword) add(node, "false", node.parent);
  else if (node.kind === ts.SyntaxKind.FalseKeyword) add(node, "true", node.parent);
}

function mutateCondition(node: ts.Node, add: Add): void {
  const condition =
    ts.isIfStatement(node) || ts.isWhileStatement(node)
      ? node.expression
      : ts.isConditionalExpression(node) || ts.isForStatement(node)
        ? node.condition
        : undefined;
  // The mutants of operators cover these already.
  if (!condition || condition.kind === ts.SyntaxKind.TrueKeyword || isNegation(condition) || isEquality(condition))
    return;
  add(condition, `!(${condition.getText()})`);
}

function mutateStatement(node: ts.Node, add: Add): void {
  if (ts.isExpressionStatement(node) && isCall(node.expression)) add(node, ";");
  if (!ts.isReturnStatement(node) || !node.expression) return;
  const { expression } = node;
  const text = expression.getText();
  if (text === "null" || text === "undefined") return;
  if (!isBoolean(expression)) add(node, "return undefined;");
  else for (const constant of ["true", "false"]) if (text !== constant) add(node, `return ${constant};`);
}

function mutatePosition(node: ts.Node, add: Add): void {
  if (ts.isElementAccessExpression(node) && !ts.isStringLiteralLike(node.argumentExpression))
    add(node.argumentExpression, `${atom(node.argumentExpression)} + 1`, node);
  if (!ts.isCallExpression(node) || !ts.isPropertyAccessExpression(node.expression)) return;
  if (!SLICING.has(node.expression.name.text)) return;
  for (const argument of node.arguments) {
    add(argument, `${atom(argument)} + 1`, node);
    if (argument.getText() !== "0") add(argument, `${atom(argument)} - 1`, node);
  }
}

function atom(node: ts.Node): string {
  const text = node.getText();
  return ts.isIdentifier(node) || ts.isNumericLiteral(node) ? text : `(${text})`;
}

function isCall(node: ts.Expression): boolean {
  if (ts.isAwaitExpression(node) || ts.isVoidExpression(node)) return isCall(node.expression);
  return ts.isCallExpression(node) && node.expression.kind !== ts.SyntaxKind.SuperKeyword;
}

function isNegation(node: ts.Expression): boolean {
  return ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken;
}

function isEquality(node: ts.Expression): boolean {
  if (!ts.isBinaryExpression(node)) return false;
  const { kind } = node.operatorToken;
  return kind === ts.SyntaxKind.EqualsEqualsEqualsToken || kind === ts.SyntaxKind.ExclamationEqualsEqualsToken;
}

/** Reports whether the syntax alone shows a boolean. */
function isBoolean(node: ts.Expression): boolean {
  if (node.kind === ts.SyntaxKind.TrueKeyword || node.kind === ts.SyntaxKind.FalseKeyword) return true;
  if (ts.isParenthesizedExpression(node)) return isBoolean(node.expression);
  if (isNegation(node) || isEquality(node)) return true;
  if (!ts.isBinaryExpression(node)) return false;
  const { operatorToken, left, right } = node;
  if (/^[<>]=?$|^in$|^instanceof$/.test(operatorToken.getText())) return true;
  return /^(&&|\|\|)$/.test(operatorToken.getText()) && isBoolean(left) && isBoolean(right);
}

function isConcatenation({ left, right }: ts.BinaryExpression): boolean {
  const isText = (node: ts.Expression): boolean =>
    ts.isStringLiteralLike(node) ||
    ts.isTemplateExpression(node) ||
    (ts.isBinaryExpression(node) && isConcatenation(node));
  return isText(left) || isText(right);
}

function onOneLine(code: string): string {
  const line = code.replace(/\s+/g, " ").trim();
  return line.length > SHOWN_CHARACTERS ? `${line.slice(0, SHOWN_CHARACTERS)}...` : line;
}
