import { globSync, readFileSync } from "node:fs";
import ts from "typescript";

/**
 * Object members spread under a condition: `...(x && { y })`. The compiler does not check such a literal for undeclared
 * members, so an option that does not exist is passed on in silence. A plain member does the same where the field
 * is declared as `y?: T | undefined`.
 *
 * These directories still have some; the number may only fall.
 */
const LEFT: Readonly<Record<string, number>> = {};

export function checkSpreads(): string | null {
  const found = new Map<string, string[]>();
  for (const path of globSync("src/**/*.ts").sort()) {
    const folder = path.split("/").slice(0, -1).slice(0, 2).join("/");
    for (const line of conditionalSpreads(path))
      found.set(folder, [...(found.get(folder) ?? []), `${path}:${line}`]);
  }
  const problems = [...found].flatMap(([folder, places]) => {
    const left = LEFT[folder] ?? 0;
    if (places.length <= left) return [];
    return [
      `${folder} has ${places.length} conditional spreads where at most ${left} may be left; declare the field as \`y?: T | undefined\` and give a plain member:`,
      ...places,
    ];
  });
  return problems.length === 0 ? null : problems.join("\n");
}

/** Line numbers of the conditional spreads in a file. */
function conditionalSpreads(path: string): number[] {
  const file = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true);
  const lines: number[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isSpreadAssignment(node) && isConditional(node.expression))
      lines.push(file.getLineAndCharacterOfPosition(node.getStart()).line + 1);
    ts.forEachChild(node, visit);
  };
  visit(file);
  return lines;
}

function isConditional(expression: ts.Expression): boolean {
  if (ts.isParenthesizedExpression(expression)) return isConditional(expression.expression);
  if (ts.isConditionalExpression(expression))
    return [expression.whenTrue, expression.whenFalse].some(hasMembers);
  return (
    ts.isBinaryExpression(expression) &&
    expression.operatorToken.kind === ts.SyntaxKind.AmpersandAmpersandToken &&
    hasMembers(expression.right)
  );
}

function hasMembers(expression: ts.Expression): boolean {
  if (ts.isParenthesizedExpression(expression)) return hasMembers(expression.expression);
  return ts.isObjectLiteralExpression(expression) && expression.properties.length > 0;
}
