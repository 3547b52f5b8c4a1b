-- Tells whether a decision was committed. If it was not, it never will be: the server may still have to read it from a connection
-- that broke. Returns 'made', 'not made' or 'unknown', and the moment.
--
-- ARGV: 2 the moment and 3 the number of the decision.
if moment - tonumber(ARGV[2]) > 60000000 then
    return { 'unknown', moment }
elseif redis.call('ZSCORE', KEYS[7], ARGV[3]) then
    return { 'made', moment }
end
redis.call('ZADD', KEYS[7], text(number), 'x' .. ARGV[3])
return { 'not made', moment }
