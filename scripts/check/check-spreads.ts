import { globSync, readFileSync } from "node:fs";
import ts from "typescript";

/**
 * Reports object members spread under a condition: `...(x && { y })`. The compiler does not check such a literal for
 * undeclared members, so it accepts an option that does not exist. It checks a plain member declared `y?: T | undefined`.
 */
export function checkSpreads(): string | null {
  const spreads = globSync("src/**/*.ts")
    .sort()
    .flatMap((path) => conditionalSpreads(path).map((line) => `${path}:${line}`));
  if (spreads.length === 0) return null;
  return `conditional spreads; declare the field as \`y?: T | undefined\` and pass it plainly:\n${spreads.join("\n")}`;
}

/** Returns the line numbers of the conditional spreads in a file. */
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
  if (ts.isConditionalExpression(expression)) return [expression.whenTrue, expression.whenFalse].some(hasMembers);
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
