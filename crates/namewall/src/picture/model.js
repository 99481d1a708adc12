'use strict';
// The chart: ends (workloads, the outside, names), their namespaces, and the cells
// between them. A line of cells is a list of runs; nothing is unpacked before it is needed.
const D=JSON.parse(document.getElementById('data').textContent);
const R=D.rows.length,OUT=R,COLS=R+1+D.names.length;
const MOOT=new Set(),CLASS=D.cells.map((c,i)=>{if(c[0]==='moot')MOOT.add(i);return c[0];});
const SPACES=D.spaces.map(([name,first,count])=>({name,first,count}));
const NAMES={name:'names',first:R+1,count:D.names.length};
const spaceOf=new Int32Array(R);SPACES.forEach((s,i)=>spaceOf.fill(i,s.first,s.first+s.count));
const label=at=>at<R?SPACES[spaceOf[at]].name+'/'+D.rows[at][0]:at===OUT?'outside':D.names[at-R-1];
const short=at=>at<R?D.rows[at][0]:label(at);
const about=at=>at<R?D.rows[at][1]+(D.rows[at][2]>1?', '+D.rows[at][2]+' pods':''):at===OUT?'every address that no workload has':'name';
const words=Array.from({length:COLS},(_,at)=>(label(at)+' '+(at<R?D.rows[at][1]:'')).toLowerCase());

const unpacked=new Array(D.lines.length);
function line(row){const id=D.lineOf[row];return unpacked[id]||(unpacked[id]=unpack(D.lines[id]));}
function unpack(text){const parts=text.split(' '),cell=new Int32Array(parts.length),end=new Int32Array(parts.length);let at=0;
 parts.forEach((part,i)=>{const star=part.indexOf('*');cell[i]=+(star<0?part:part.slice(0,star));at+=star<0?1:+part.slice(star+1);end[i]=at;});return{cell,end};}
function firstRun(end,column){let low=0,high=end.length;while(low<high){const mid=low+high>>1;end[mid]<=column?low=mid+1:high=mid;}return low;}
function count(row,first,last,sum){const{cell,end}=line(row);let at=first;
 for(let i=firstRun(end,first);at<last;i++){const to=Math.min(end[i],last);sum.set(cell[i],(sum.get(cell[i])||0)+to-at);at=to;}}

const isOpen=c=>c==='some'||c==='all';
const sums=new Map();
// What the rows of one item open to the columns of another.
function between(row,col){const key=row.first*COLS*2+col.first*2+(row.space?1:0)+(col.space?.5:0);let known=sums.get(key);if(known)return known;
 const sum=new Map();for(let r=row.first;r<row.first+row.count;r++)count(r,col.first,col.first+col.count,sum);
 const parts=[...sum].filter(([c])=>!MOOT.has(c)).sort((a,b)=>b[1]-a[1]);
 const total=parts.reduce((n,p)=>n+p[1],0),open=parts.reduce((n,[c,k])=>n+(isOpen(CLASS[c])?k:0),0);
 const depends=parts.reduce((n,[c,k])=>n+(CLASS[c]==='depends'?k:0),0);
 let kind='moot';if(parts.length===1)kind=CLASS[parts[0][0]];else if(open)kind=open===total&&parts.every(([c])=>CLASS[c]==='all')?'all':'some';else if(depends)kind='depends';else if(parts.length)kind='none';
 known={kind,parts,total,open,depends,own:parts.some(([c])=>D.cells[c][2])};sums.set(key,known);return known;}
const sign=c=>({some:'+',all:'+',depends:'?',none:'·',moot:''})[c.kind]+(c.own?'*':'');

// What is shown along one side: namespaces, and the ends of those that are open.
const openOf={from:new Set(),to:new Set()};
const few=R<=60;
if(few)for(const side of['from','to'])SPACES.forEach(s=>openOf[side].add(s));
if(D.names.length<=24)openOf.to.add(NAMES);
function axis(side,shown){const items=[],opened=openOf[side],auto=shown&&shown.auto;
 for(const s of side==='to'&&D.names.length?[...SPACES,null,NAMES]:[...SPACES,null]){
  if(!s){if(!shown||shown.has(OUT))items.push({first:OUT,count:1});continue;}
  const ends=[];for(let at=s.first;at<s.first+s.count;at++)if(!shown||shown.has(at))ends.push(at);
  if(!ends.length)continue;
  const isOpened=opened.has(s)||auto;
  items.push({first:s.first,count:s.count,space:s,opened:isOpened});
  if(isOpened)for(const at of ends)items.push({first:at,count:1});}
 return items;}

// The ends that the tools leave over, or null for all.
function filtered({text,space,side,only}){const terms=text.toLowerCase().split(/\s+/).filter(Boolean);
 const wanted=at=>(space===''||(at<R&&spaceOf[at]===+space))&&terms.every(t=>words[at].includes(t));
 const pick=last=>{const found=new Set();for(let at=0;at<last;at++)if(wanted(at))found.add(at);found.auto=terms.length>0&&found.size<=300||space!=='';return found;};
 const narrow=terms.length>0||space!=='';
 let rows=narrow&&side!=='to'?pick(R+1):null,cols=narrow&&side!=='from'?pick(COLS):null;
 if(!only)return{rows,cols};
 const all=n=>{const s=new Set();for(let i=0;i<n;i++)s.add(i);return s;};
 const from=rows||all(R+1),to=cols||all(COLS);
 const test=only==='open'?isOpen:only==='closed'?c=>c==='none':c=>c==='depends';
 const keep=new Set(),seen=new Int32Array(COLS+1),first=new Int32Array(COLS).fill(-1),varied=new Uint8Array(COLS);
 for(const r of from){const{cell,end}=line(r);let at=0,hit=false,one=-1;
  for(let i=0;i<cell.length;i++){const c=cell[i];
   if(only==='differ'){if(!MOOT.has(c)){let any=false;for(let k=at;k<end[i];k++){if(!to.has(k))continue;any=true;if(first[k]<0)first[k]=c;else if(first[k]!==c)varied[k]=1;}
     if(any){if(one>=0&&one!==c)hit=true;one=c;}}}
   else if(test(CLASS[c])){let any=!cols;if(cols)for(let k=at;k<end[i]&&!any;k++)any=to.has(k);if(any)hit=true;seen[at]++;seen[end[i]]--;}
   at=end[i];}
  if(hit)keep.add(r);}
 const left=new Set();let depth=0;for(let k=0;k<COLS;k++){depth+=seen[k];if(to.has(k)&&(only==='differ'?varied[k]:depth>0))left.add(k);}
 // Where rows differ from each other and each is the same throughout, all of them are of interest.
 const some=(kept,every)=>only==='differ'&&!kept.size&&(keep.size||left.size)?new Set(every):kept;
 const shown={rows:some(keep,from),cols:some(left,to)};
 shown.rows.auto=rows&&rows.auto;shown.cols.auto=cols&&cols.auto;
 return shown;}
