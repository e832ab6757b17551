import { render } from "preact";
import "@xterm/xterm/css/xterm.css";
import "./console.css";
import { Console } from "./console-frame.tsx";

const root = document.getElementById("console");
if (root) render(<Console />, root);
